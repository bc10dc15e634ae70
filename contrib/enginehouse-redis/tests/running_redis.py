"""A Redis server of its own for each test."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from redis import Redis

_GATEWAYS = "{enginehouse}:gateways"
SERVER = shutil.which("redis-server") or shutil.which("valkey-server")


class RunningRedis:
    """Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        self._command: list[str] = []

    def __enter__(self) -> RunningRedis:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        assert SERVER is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._command = [SERVER, *options, "--dir", str(self._folder)]
        self._begin()
        until(self._listens, "Redis listens")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def spoil(self, how: str) -> None:
        """Let it be ``stopped``, ``killed`` or ``wrong``, until ``repair``."""
        if how == "stopped":
            self.signal(signal.SIGSTOP)
        elif how == "killed":
            self.kill()
        else:
            with Redis.from_url(self.url) as client:
                client.delete(_GATEWAYS)
                client.set(_GATEWAYS, "no set of gateways")

    def repair(self, how: str) -> None:
        if how == "stopped":
            self.signal(signal.SIGCONT)
        elif how == "killed":
            self.start()
        else:
            with Redis.from_url(self.url) as client:
                client.delete(_GATEWAYS)

    def _begin(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _listens(self) -> bool:
        if self.process is None or self.process.poll() is not None:  # somebody else has the port for a moment
            self._begin()
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def until(holds: Callable[[], object], what: str, seconds: float = 40) -> None:
    """Ask until it ``holds``."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"never: {what}"
        time.sleep(0.005)
