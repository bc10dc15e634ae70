"""Events and traces of a worker's requests, for the gateway's own observers and the exporter at the owner."""

from __future__ import annotations

import asyncio
from typing import Final

from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.interfaces.observers import Observer
from enginehouse.processes.workers.channel import Channel, Send
from enginehouse.processes.workers.messages import ToOwner
from enginehouse.relay.live.live_state import LiveState

_BATCH: Final = 64
_BATCH_EVERY_S: Final = 0.25
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
EVENTS: Final = ("routed", "moved", "finished")


class RequestEvents(Observer):
    """Sends the owner each event of a request, while it wants them."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        chosen = route.chosen
        state = LiveState(
            id=request_id.encode(),
            path=requirements.path,
            requirements=requirements.told(),
            replica=chosen.replica,
            model=chosen.model,
            reason=route.reason,
            attempted=route.attempted,
        )
        self._send(ToOwner.tell_routed, request_id, state)

    def moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        self._send(ToOwner.tell_moved, request_id, source, destination, gap_ms)

    def finished(self, record: RequestRecord) -> None:
        self._send(ToOwner.tell_finished, record)


class OwnerExporter:
    """Collects traced requests. While the ``owner`` reads too slowly, no further request is traced."""

    def __init__(self, owner: Channel) -> None:
        self._owner = owner
        self._requests: list[TracedRequest] = []
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Whether a request that begins now may be traced."""
        return self._owner.waiting < _MOST_WAITING_BYTES

    def add(self, request: TracedRequest) -> None:
        """Send ``request``, with those that follow soon."""
        self._requests.append(request)
        if len(self._requests) >= _BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_EVERY_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._requests:
            self._owner.send(ToOwner.export, self._requests)
            self._requests = []
