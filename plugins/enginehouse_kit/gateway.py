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
from typing import Any, ClassVar

from enginehouse_kit.process import RunningServer, ServerProcess, fetch

__all__ = ["RunningGateway", "Status"]

_PAUSE = 0.02

Status = dict[str, Any]
"""The JSON object of ``GET /api/status``."""


class RunningGateway(RunningServer):
    """``enginehouse serve`` on a free port. Use it as a context manager.

    ``config`` is the text of its ``enginehouse.toml``; ``None`` means that there is no such file. ``env`` is added to
    its environment, which has no ``ENGINEHOUSE_`` variables of this process; but with ``ENGINEHOUSE_TEST_WORKERS=2`` in
    this one, every gateway has two workers. ``key`` is an admin key for ``status`` and
    ``until``, for a configuration with keys. ``python`` is the interpreter of the environment where it is installed.
    ``url`` is the gateway's address, ``greeting`` the text it printed first.
    """

    greets: ClassVar[re.Pattern[str]] = re.compile(r"listening on (http://[^\s,\"]+)")

    def __init__(
        self,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        key: str = "",
        python: str = sys.executable,
    ) -> None:
        super().__init__()
        self.greeting = ""
        self._config = config
        self._env = env or {}
        self._key = key
        self._python = python
        self._folder: TemporaryDirectory[str] | None = None
        self._log = Path()

    def _launch(self) -> ServerProcess:
        self._clean_up()  # after an earlier one that was killed
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
        return ServerProcess(command, folder=folder, environment=environment, log=self._log)

    def _greeted(self, found: re.Match[str] | None, printed: str) -> None:
        self.greeting = printed
        if found is None:
            raise RuntimeError(f"The gateway did not start:\n{printed}{self.log}")
        self.url = found[1]

    def _clean_up(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

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
