"""Streams that wait for their first byte, as observers see them that report to their clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from enginehouse.domain.ticket import Phase
from enginehouse.interfaces.observers import WaitingStream
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.telemetry.observers import Callbacks, notify

_LOOK_EVERY_S: Final = 0.5


class WaitingStreams:
    """Tells observers of all waiting streams together, only twice a second, because requests wait meanwhile.

    ``wanted``: what they want called. ``queues`` and ``waiting_room`` know the positions.
    """

    def __init__(self, queues: Mapping[str, RequestQueue], waiting_room: WaitingRoom) -> None:
        self.wanted: Callbacks = ()
        self._queues = queues
        self._waiting_room = waiting_room
        self._next_look = 0.0

    def tell(self, live: Mapping[LiveRequest, int], now: float) -> None:
        """Tell of those among ``live`` at ``now``, in seconds of the gateway's clock, if it is time."""
        if self.wanted and now >= self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            if streams := list(self._among(live, now)):
                notify(self.wanted, streams)

    def _among(self, live: Mapping[LiveRequest, int], now: float) -> Iterator[WaitingStream]:
        waiting = [(each, number, reply) for each, number in live.items() if (reply := each.waiting_reply) is not None]
        if not waiting:
            return
        places = {each.ticket: each for queue in {*self._queues.values()} for each in queue.waiting()}
        places.update(self._waiting_room.waiting())
        for request, number, reply in waiting:
            place = places.get(request.ticket) if request.ticket is not None else None
            yield _WaitingReply(request, number, reply, place, now)


class _WaitingReply:
    """One of them, with ``place`` among the tickets that wait. Implements ``WaitingStream``."""

    def __init__(self, request: LiveRequest, number: int, reply: Reply, place: Waiting | None, now: float) -> None:
        needs = request.requirements
        self.number = number
        self.id = request.request_id.decode()
        self.path = needs.path if needs is not None else ""
        self.model = request.model or ""
        self.phase = place.phase if place is not None else Phase.SERVING
        self.position = place.position if place is not None else 0
        self.waited = now - request.began
        self._request = request
        self._reply = reply

    @property
    def has_begun(self) -> bool:
        return bool(self._reply.status)

    def write(self, piece: bytes) -> bool:
        reply, request = self._reply, self._request
        if reply.paused or request.waiting_reply is not reply:
            return False
        if not isinstance(piece, bytes):
            raise TypeError("a piece of a stream must be bytes")
        try:
            if not reply.status:
                reply.open(request.request_id)
            reply.write(piece)
        except Exception as error:
            request.fail_alone(error)
            return False
        return True
