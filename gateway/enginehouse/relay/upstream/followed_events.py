"""The server-sent events of an engine about itself, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enginehouse.domain.errors import UpstreamError
from enginehouse.relay.events.sse import LARGEST_HELD, is_whole, read_events, whole_events
from enginehouse.relay.heads.answer_head import AnswerHead


class FollowedEvents:
    """Hands the data of each event of an answer to ``on_event``, which must not raise.

    ``begun``: done with the engine's first answer. ``ended``: fails with ``UpstreamError`` at the end.
    """

    def __init__(self, on_event: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._on_event = on_event
        self._held = b""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        if self.ended.done():
            return
        if head is not None:
            if not head.stream or head.status != 200:
                self._end(f"it has no events (status {head.status})")
                return
            self.begun.set_result(None)
        whole, self._held = whole_events(self._held + body)
        if whole and not is_whole(whole):
            self._end(f"an event has more than {LARGEST_HELD} bytes")
            return
        for event in read_events(whole):
            if event.data is not None:
                self._on_event(event.data)
        if complete:
            self._end("its events have ended")

    def broken(self, why: str, *, stale: bool) -> None:
        self._end(why)

    def _end(self, why: str) -> None:
        self._held = b""
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.ended.done():
            self.ended.set_exception(UpstreamError(why))
