"""The gateway's own log, as text or as JSON lines, on standard error."""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timezone

import msgspec

from enginehouse.config.schema import Telemetry


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


def configure_logs(settings: Telemetry) -> None:
    """Send the log of this process to standard error as ``[telemetry]`` says."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
