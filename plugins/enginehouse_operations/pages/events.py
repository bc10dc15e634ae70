"""``GET /api/events``: the event stream."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse_operations.pages.endless import endless
from enginehouse_operations.pages.event_stream import EventStream
from enginehouse_operations.pages.reading import facts_of


def event_routes() -> list[Route]:
    """The page of one gateway, all of whose watchers share one stream."""
    streams: list[EventStream] = []

    async def watch(request: Request) -> Response:
        """Server-sent events until the client disconnects."""
        facts = facts_of(request)
        if not streams:
            streams.append(EventStream(facts))
        return endless(request, streams[0].watch(), "text/event-stream")

    return [Route("/api/events", watch)]
