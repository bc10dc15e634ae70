"""Has the access log written while the configuration wants it, in one order with the gateway's own log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

from enginehouse import Observer
from enginehouse.records import RequestFacts, TelemetrySettings
from enginehouse.services import Configured
from enginehouse_access_log.access_log import AccessLog


class AccessLogObserver(Observer):
    """Writes the access log, unless ``telemetry.access_log`` is false."""

    def __init__(self) -> None:
        self._log: AccessLog | None = None

    def at_end(self, configured: Configured) -> Callable[[RequestFacts], None] | None:
        settings: TelemetrySettings = configured.table("telemetry")
        if settings.access_log is False:
            return None
        log = self._log = self._log or AccessLog(json=False)
        log.json = settings.log_format == "json"
        for handler in _stream_handlers():
            if handler.stream is sys.stderr:
                handler.setStream(_BehindAccessLog(log))
        return log.add

    async def stop(self) -> None:
        if self._log is None:
            return
        for handler in _stream_handlers():
            if isinstance(handler.stream, _BehindAccessLog) and handler.stream.log is self._log:
                handler.setStream(sys.stderr)
        await self._log.close()


class _BehindAccessLog:
    """Standard error for another log: its lines stand behind those of requests that ended before and still wait.

    They do so if the running event loop writes them; other threads know of no order.
    """

    def __init__(self, log: AccessLog) -> None:
        self.log = log
        self._stream = sys.stderr
        self._loop = asyncio.get_running_loop()

    def write(self, text: str) -> None:
        if not (self._loop is _running_loop() and self.log.add_behind(text)):
            self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    return [each for each in logging.getLogger().handlers if isinstance(each, logging.StreamHandler)]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
