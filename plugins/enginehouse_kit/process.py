"""Runs a server in a child process, for the kit's engines and gateways."""

from __future__ import annotations

import http.client
import os
import re
import select
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

_START_TIMEOUT = 90.0
_STOP_TIMEOUT = 30.0
popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
"""Starts a child process; tests of many may fork them instead."""


class ServerProcess:
    """A child process that prints its address to standard output when it is ready.

    ``log`` receives standard error; without it, standard error is that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._output = b""
        with nullcontext() if log is None else log.open("wb") as errors:
            self._process = popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=environment)
        assert self._process.stdout is not None
        self._pipe = self._process.stdout

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def printed(self) -> str:
        """Standard output so far."""
        return self._output.decode(errors="replace")

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read whole lines of standard output until ``pattern`` matches.

        ``None`` if the output ends first, or after 90 seconds.
        """
        end = time.monotonic() + _START_TIMEOUT
        while (found := pattern.search(self.printed.rpartition("\n")[0])) is None:
            readable, _, _ = select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._pipe.fileno(), 1 << 16) if readable else b""
            if not piece:
                return None
            self._output += piece
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has exited."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait until the process exits, and return its exit status.

        Kills the process and raises ``subprocess.TimeoutExpired`` if it still runs after 30 seconds.
        """
        self.send(number)
        try:
            return self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._pipe.close()


class RunningServer(ABC):
    """A server in a process of its own, as a context manager that starts and stops it."""

    greets: ClassVar[re.Pattern[str]]
    """What it prints when it listens."""

    def __init__(self) -> None:
        self.url = ""
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean_up()

    def start(self) -> None:
        """Start the process and wait until it listens. Raises ``RuntimeError`` if it does not."""
        self._process = process = self._launch()
        try:
            self._greeted(process.wait_for(self.greets), process.printed)
        except BaseException:
            self.kill()
            self._clean_up()
            raise

    @property
    def pid(self) -> int:
        """The process id. ``start`` after ``kill`` makes a new one."""
        return self._running().pid

    def stop(self) -> int:
        """Send SIGTERM, wait until the process exits, and return its exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> int:
        """Send SIGKILL, as a crash would, and return the exit status. What the process has launched keeps running."""
        return self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait until the process exits, and return its exit status."""
        return 0 if self._process is None else self._process.end(number)

    def _running(self) -> ServerProcess:
        assert self._process is not None, "it was not started"
        return self._process

    @abstractmethod
    def _launch(self) -> ServerProcess: ...

    @abstractmethod
    def _greeted(self, found: re.Match[str] | None, printed: str) -> None:
        """Take its addresses from what it printed. Raises ``RuntimeError`` if it ended instead."""

    def _clean_up(self) -> None:
        """Remove its files."""


def fetch(url: str, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """The body of the answer to one request.

    Raises ``ValueError`` for a status other than 200, ``OSError`` if the server does not answer.
    """
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_STOP_TIMEOUT)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise ValueError(f"{method} {path} answered {response.status}: {answer.decode(errors='replace')}")
    return answer
