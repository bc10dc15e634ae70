"""The gateway as a real process, for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_ADDRESS = re.compile(r"listening on (http://[^\s,]+)")
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 15.0
_PAUSE = 0.02

Status = dict[str, Any]
"""What ``/api/status`` answers."""


class RunningGateway:
    """``enginehouse serve`` on a free port, which runs inside a ``with`` block.

    ``config`` is the text of an ``enginehouse.toml``; without it the gateway finds none. ``env`` is added to its
    environment, which has none of the ``ENGINEHOUSE_`` variables of this process. ``key`` is an admin key for
    ``status`` and ``until``, where keys are set.
    """

    def __init__(self, config: str | None = None, env: Mapping[str, str] | None = None, *, key: str = "") -> None:
        self.url = ""
        self.greeting = ""
        self._config = config
        self._env = env or {}
        self._key = key
        self._folder: TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()

    def __enter__(self) -> RunningGateway:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if self._folder is not None:
                self._folder.cleanup()

    def start(self) -> None:
        """Start the process and wait until it listens. Raises ``RuntimeError``, with its log, when it does not."""
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        if self._config is not None:
            (folder / "enginehouse.toml").write_text(self._config, encoding="utf-8")
        self._log = folder / "log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEHOUSE_")}
        own = {"XDG_CONFIG_HOME": str(folder), "ENGINEHOUSE_STATE_DIR": str(folder)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enginehouse", "serve", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**environment, **own, **self._env},
            )
        try:
            self.url = self._address()
        except BaseException:
            self.kill()
            raise

    def rewrite(self, config: str) -> None:
        """Exchange its configuration file, which counts once the gateway loads it again."""
        assert self._folder is not None
        unfinished = Path(self._folder.name, "enginehouse.toml.new")
        unfinished.write_text(config, encoding="utf-8")
        unfinished.replace(unfinished.with_suffix(""))

    def hang_up(self) -> None:
        """Have it load its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote to standard error so far; gone after the ``with`` block."""
        return self._log.read_text(encoding="utf-8")

    def status(self) -> Status:
        """What ``GET /api/status`` answers. Raises ``ValueError`` for anything but 200, ``OSError`` if it is gone."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_STOP_TIMEOUT)
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            connection.request("GET", "/api/status", headers=headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"/api/status answered {response.status}: {answer.decode(errors='replace')}")
        status: Status = json.loads(answer)
        return status

    def until(self, holds: Callable[[Status], bool], timeout: float = 15.0) -> Status:
        """Ask for the status again and again until ``holds``. Raises ``TimeoutError`` with the last one."""
        end = time.monotonic() + timeout
        while not holds(status := self.status()):
            if time.monotonic() > end:
                raise TimeoutError(f"after {timeout:g} s the status is still {json.dumps(status)}")
            time.sleep(_PAUSE)
        return status

    def until_health(self, **backends: str) -> Status:
        """Wait until each backend named has the health given: ``until_health(a="healthy", b="unhealthy")``."""

        def holds(status: Status) -> bool:
            return backends.items() <= {each["name"]: each["health"] for each in status["backends"]}.items()

        return self.until(holds)

    def stop(self) -> int:
        """Send SIGTERM and wait until it has ended; its exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> int:
        """End it at once, as a crash does; its exit status. Engines that it launched are left behind."""
        return self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> int:
        """Send a signal and wait until it has ended; its exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        try:
            status = self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
        return status

    def _address(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout
        end = time.monotonic() + _START_TIMEOUT
        while (found := _ADDRESS.search(self.greeting)) is None:
            readable, _, _ = select.select([output], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(output.fileno(), 1 << 16) if readable else b""
            if not piece:
                raise RuntimeError(f"The gateway did not start:\n{self.greeting}{self.log}")
            self.greeting += piece.decode()
        return found[1]
