"""The gateway's own log, as text or as JSON lines: on standard error, and its last lines in a ring."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from datetime import datetime, timezone

import msgspec

from enginehouse.config.schema import Telemetry
from enginehouse.telemetry.log_ring import LogRing


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message and, if there is one, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class OwnLog(logging.Handler):
    """Keeps the last lines of the gateway's own log in ``ring``.

    Lines may come from any thread. Once ``open`` was called, ``ring`` is only touched where that event loop runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ring = LogRing()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """There are readers from now on, on the event loop that runs here."""
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
        except Exception:
            self.handleError(record)
            return
        if self._loop is None or self._loop is _loop_here():
            self.ring.write(line)
        else:
            with suppress(RuntimeError):  # the loop has ended, and nobody reads any more
                self._loop.call_soon_threadsafe(self.ring.write, line)


def configure_logs(settings: Telemetry, log: OwnLog | None = None) -> OwnLog:
    """Send the log of this process to standard error as ``[telemetry]`` says, and keep its last lines, in ``log``."""
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    own = log or OwnLog()
    handlers = [own, logging.StreamHandler(sys.stderr)]
    for handler in handlers:
        handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level.upper(), handlers=handlers, force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return own


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
