"""``GET /api/events``: the event stream."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.pages.endless import EndlessStreams
from enginehouse.telemetry.event_stream import EventStream


class Events:
    """Serves the event stream to operators."""

    def __init__(self, events: EventStream, streams: EndlessStreams) -> None:
        self._events = events
        self._streams = streams

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/events", self.watch)]

    async def watch(self, request: Request) -> Response:
        """Server-sent events until the client disconnects."""
        return self._streams.answer(request, self._events.watch(), "text/event-stream")
