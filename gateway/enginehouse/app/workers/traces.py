"""The traces of a worker's requests, on their way to the owner's exporter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from enginehouse.app.workers.channel import Send
from enginehouse.app.workers.messages import ToOwner
from enginehouse.interfaces.exporters import TracedRequest

_BATCH: Final = 64
_BATCH_EVERY_S: Final = 0.25
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024


class OwnerExporter:
    """Collects traced requests. While the owner reads too slowly, no further request is traced.

    ``waiting``: the bytes that the owner has not read.
    """

    def __init__(self, send: Send, waiting: Callable[[], int]) -> None:
        self._send = send
        self._waiting = waiting
        self._requests: list[TracedRequest] = []
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Whether a request that begins now may be traced."""
        return self._waiting() < _MOST_WAITING_BYTES

    def add(self, request: TracedRequest) -> None:
        """Send ``request``, with those that follow soon."""
        self._requests.append(request)
        if len(self._requests) >= _BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_EVERY_S, self.flush)

    def flush(self) -> None:
        """Send all that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._requests:
            self._send(ToOwner.export, self._requests)
            self._requests = []
