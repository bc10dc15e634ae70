"""The gateway's own log: text or JSON lines on standard error, and the last lines in a ring."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from datetime import datetime, timezone

import msgspec

from enginehouse.config.schema import TelemetrySettings
from enginehouse.telemetry.log_ring import LogRing


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message and, if there is one, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class GatewayLog(logging.Handler):
    """Keeps the last lines of the gateway's own log in ``ring``.

    Any thread may log. After ``open``, only the thread of that event loop touches ``ring``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ring = LogRing()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Let readers on the running event loop read ``ring``."""
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
        except Exception:
            self.handleError(record)
            return
        if self._loop is None or self._loop is _running_loop():
            self.ring.write(line)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.ring.write, line)


def configure_logs(settings: TelemetrySettings, log: GatewayLog | None = None) -> GatewayLog:
    """Send this process's log to standard error, as ``[telemetry]`` says, and keep its last lines in ``log``."""
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    own = log or GatewayLog()
    handlers = [own, logging.StreamHandler(sys.stderr)]
    for handler in handlers:
        handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level.upper(), handlers=handlers, force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return own


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
