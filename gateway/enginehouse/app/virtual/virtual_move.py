"""Moves a request of a virtual gateway to another engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from enginehouse.domain.errors import CannotContinue, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.relay.queue_slot import QueueSlot

if TYPE_CHECKING:
    from enginehouse.app.virtual.virtual_gateway import VirtualGateway
    from enginehouse.app.virtual.virtual_request import VirtualRequest


class VirtualMove:
    """A place for ``request`` at the backend ``destination``, until ``complete`` or ``cancel``.

    Without ``queued``, the queue of ``destination`` does not know the place. Raises ``CannotContinue`` if there is no
    place, as the relay's moves do.
    """

    def __init__(
        self, gateway: VirtualGateway, request: VirtualRequest, destination: str, *, queued: bool = True
    ) -> None:
        assert request.route is not None
        self._request = request
        self._candidate = candidate = _candidate(gateway, request.route.chosen, destination)
        self._slot: QueueSlot | None = None
        queue = gateway.queues.get(destination) if queued else None
        if queue is not None:
            self._slot = slot = QueueSlot(self, queue, request.id.encode(), candidate.replica, 0)
            slot.take()
            if not slot.is_granted:
                slot.release()
                raise CannotContinue(f"Backend '{destination}' is full")

    def complete(self) -> None:
        """The request is there now."""
        request = self._request
        assert request.route is not None
        request.moved(msgspec.structs.replace(request.route, chosen=self._candidate), self._slot)

    def cancel(self) -> None:
        """The request stays."""
        if self._slot is not None:
            self._slot.release()

    def granted(self) -> None:
        """The slot was granted, which the constructor sees."""

    def rejected(self, error: RequestError) -> None:
        """The slot was not granted, which the constructor sees."""


def _candidate(gateway: VirtualGateway, source: Candidate, destination: str) -> Candidate:
    serving = {each.backend: each for each in gateway.fleet.snapshot.candidates(source.model)}
    if destination not in serving or destination == source.backend:
        raise CannotContinue(f"Backend '{destination}' is no other one that serves '{source.model}'")
    return serving[destination]
