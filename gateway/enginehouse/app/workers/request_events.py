"""Events of a worker's requests, for the gateway's own observers at the owner."""

from __future__ import annotations

from typing import Final

from enginehouse.app.workers.channel import Send
from enginehouse.app.workers.messages import ToOwner
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.interfaces.observers import Observer
from enginehouse.relay.live.live_state import LiveState

EVENTS: Final = ("routed", "moved", "finished")


class RequestEvents(Observer):
    """Sends the owner each event of a request, while it wants them."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        chosen = route.chosen
        state = LiveState(
            number=0,
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
