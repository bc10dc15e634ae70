"""The gateway's own log: text or JSON lines on standard error, and the last lines in a ring. Secrets are masked."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.names import escaped
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.log_ring import LogRing

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler  # Python 3.10 knows no parameter of it


_MASK = "***"
_SHORTEST = 6
"""In characters. Shorter secrets would also mask ordinary words."""
_SCHEME = r"(?:bearer|basic)"
_VALUE = r"[^\s\"',;]+"
_NAME = r"(?:proxy-)?authorization|x-api-key|api[-_]key"
_CREDENTIALS = re.compile(rf"(?i)(\b(?:{_NAME})\b[\"']?\s*[:=]\s*[\"']?(?:{_SCHEME}\s+)?|\b{_SCHEME}\s+){_VALUE}")


class Redaction:
    """Masks ``secrets``, and every word after ``Bearer`` or ``Authorization:``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, known))) if known else None

    def apply(self, text: str) -> str:
        """``text`` without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(_MASK, text)
        return _CREDENTIALS.sub(rf"\1{_MASK}", text)


class TextLines(logging.Formatter):
    """Lines for people, without secrets. A line of a request ends with its ids."""

    def __init__(self, redaction: Redaction) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s%(ids)s")
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        record.ids = "".join(f" {name}={id}" for name, id in log_context.ids(record.thread).items())
        return self._redaction.apply(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _continued(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return f"  {_continued(super().formatException(ei))}"


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the ids of the request and the exception, if any.

    Secrets are masked.
    """

    def __init__(self, redaction: Redaction) -> None:
        super().__init__()
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redaction.apply(record.getMessage()),
        }
        line |= log_context.ids(record.thread)
        if record.exc_info:
            line["exception"] = self._redaction.apply(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def json_line(logger: str, message: str) -> str:
    """A line for what is printed beside the log, so that whoever reads both finds only JSON."""
    return JsonLines(Redaction()).format(
        logging.makeLogRecord({"name": logger, "levelno": logging.INFO, "levelname": "INFO", "msg": message})
    )


class GatewayLog(_StreamHandler):
    """Writes the gateway's own log to standard error, and keeps its last lines in ``ring``.

    Any thread may log. After ``open``, only the thread of that event loop touches ``ring``.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.ring = LogRing()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Let readers on the running event loop read ``ring``."""
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
            self._keep(line.encode(errors="replace"))
            self.stream.write(line)
            self.flush()
        except Exception:
            self.handleError(record)

    def _keep(self, line: bytes) -> None:
        """Put a line into ``ring``."""
        if self._loop is None or self._loop is _running_loop():
            self.ring.write(line)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.ring.write, line)


def configure_logs(
    settings: TelemetrySettings, log: GatewayLog | None = None, secrets: Iterable[str] = ()
) -> GatewayLog:
    """Send this process's log to standard error, as ``[telemetry]`` says, and keep its last lines in ``log``.

    ``secrets`` are masked in it.
    """
    redaction = Redaction(secrets)
    formatter = JsonLines(redaction) if settings.log_format == "json" else TextLines(redaction)
    own = log or GatewayLog()
    own.setStream(sys.stderr)
    own.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[own], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return own


def _continued(text: str) -> str:
    """``text`` with its further lines indented. Clients choose parts of it, and none may look like another line."""
    return escaped(text).replace("\n", "\n  ")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
