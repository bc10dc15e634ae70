"""Runs the gateway as a real process, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from enginehouse_kit.process import ServerProcess, fetch

_ADDRESS = re.compile(r"listening on (http://[^\s,]+)")
_PAUSE = 0.02

Status = dict[str, Any]
"""The JSON object of ``GET /api/status``."""


class RunningGateway:
    """``enginehouse serve`` on a free port. Use it as a context manager.

    ``config`` is the text of its ``enginehouse.toml``; ``None`` means that there is no such file. ``env`` is added to
    its environment, which has no ``ENGINEHOUSE_`` variables of this process; but with ``ENGINEHOUSE_TEST_WORKERS=2`` in
    this one, every gateway has two workers. ``key`` is an admin key for ``status`` and
    ``until``, for a configuration with keys. ``python`` is the interpreter of the environment where it is installed.
    ``url`` is the gateway's address, ``greeting`` the text it printed first.
    """

    def __init__(
        self,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        key: str = "",
        python: str = sys.executable,
    ) -> None:
        self.url = ""
        self.greeting = ""
        self._config = config
        self._env = env or {}
        self._key = key
        self._python = python
        self._folder: TemporaryDirectory[str] | None = None
        self._process: ServerProcess | None = None
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
            self._clean_up()

    def _clean_up(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def start(self) -> None:
        """Start the process and wait until it listens. Raises ``RuntimeError``, with its log, if it does not."""
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        if self._config is not None:
            (folder / "enginehouse.toml").write_text(self._config, encoding="utf-8")
        self._log = folder / "log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEHOUSE_")}
        own = {"XDG_CONFIG_HOME": str(folder), "ENGINEHOUSE_STATE_DIR": str(folder)}
        if workers := os.environ.get("ENGINEHOUSE_TEST_WORKERS"):
            own["ENGINEHOUSE_SERVER_WORKERS"] = workers
        command = [self._python, "-m", "enginehouse", "serve", "--port", "0"]
        environment |= {**own, **self._env}
        self._process = ServerProcess(command, folder=folder, environment=environment, log=self._log)
        try:
            found = self._process.wait_for(_ADDRESS)
            self.greeting = self._process.printed
            if found is None:
                raise RuntimeError(f"The gateway did not start:\n{self.greeting}{self.log}")
            self.url = found[1]
        except BaseException:
            self.kill()
            self._clean_up()
            raise

    def write_config(self, config: str) -> None:
        """Replace the configuration file. It takes effect when the gateway reloads it."""
        assert self._folder is not None
        unfinished = Path(self._folder.name, "enginehouse.toml.new")
        unfinished.write_text(config, encoding="utf-8")
        unfinished.replace(unfinished.with_suffix(""))

    def reload(self) -> None:
        """Send SIGHUP: the gateway reloads its configuration."""
        self._running().send(signal.SIGHUP)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    @property
    def log(self) -> str:
        """Standard error so far. Not available after the ``with`` block."""
        return self._log.read_text(encoding="utf-8")

    def status(self) -> Status:
        """The answer of ``GET /api/status``.

        Raises ``ValueError`` for a status other than 200, ``OSError`` if the gateway does not answer.
        """
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        status: Status = json.loads(fetch(f"{self.url}/api/status", headers=headers))
        return status

    def until(self, holds: Callable[[Status], bool], timeout: float = 30.0) -> Status:
        """Poll ``status`` until ``holds`` is true for it. Raises ``TimeoutError`` with the last status."""
        end = time.monotonic() + timeout
        while not holds(status := self.status()):
            if time.monotonic() > end:
                raise TimeoutError(f"after {timeout:g} s the status is still {json.dumps(status)}")
            time.sleep(_PAUSE)
        return status

    def until_health(self, **backends: str) -> Status:
        """Wait until each backend has the given health: ``until_health(a="healthy", b="unhealthy")``."""

        def holds(status: Status) -> bool:
            return backends.items() <= {each["name"]: each["health"] for each in status["backends"]}.items()

        return self.until(holds)

    def stop(self) -> int:
        """Send SIGTERM, wait until the process exits, and return its exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> int:
        """Send SIGKILL, as a crash would, and return the exit status. Launched engines keep running."""
        return self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait until the process exits, and return its exit status."""
        return 0 if self._process is None else self._process.end(number)

    def _running(self) -> ServerProcess:
        assert self._process is not None, "the gateway was not started"
        return self._process
