"""``GET /api/events``: the event stream. ``GET /api/events/past``: the last events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse.pages import PageFacts
from enginehouse_operations.pages.endless import endless
from enginehouse_operations.pages.event_stream import EventStream
from enginehouse_operations.pages.kept_events import KeptEvents
from enginehouse_operations.pages.live_view import LiveView
from enginehouse_operations.pages.reading import facts_of, json_response, read_query, read_time

_MOST = 2000


class PastQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: as in ``/api/usage``."""

    since: str = "0"
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 200


class EventPages:
    """The pages of one gateway, all of whose watchers share one stream. ``tick`` is called once a second."""

    def __init__(self) -> None:
        self._stream: EventStream | None = None
        self._kept: KeptEvents | None = None

    @property
    def routes(self) -> Sequence[Route]:
        return [Route("/api/events", self.watch), Route("/api/events/past", self.past)]

    def tick(self, facts: PageFacts) -> None:
        """Keep events from now on."""
        if self._kept is None:
            self._kept = KeptEvents(facts, LiveView(facts.gateway))
        self._kept.tick()

    async def watch(self, request: Request) -> Response:
        """Server-sent events until the client disconnects."""
        if self._stream is None:
            facts = facts_of(request)
            self._stream = EventStream(facts, LiveView(facts.gateway))
        return endless(request, self._stream.watch(), "text/event-stream")

    async def past(self, request: Request) -> Response:
        """The last events, the newest first, also those of earlier runs: ``?since=&limit=``."""
        query = read_query(request.query_params, PastQuery, f"limit is a number up to {_MOST}, since a time")
        since = read_time(query.since, facts_of(request).epoch())
        events = [] if self._kept is None else self._kept.newest_first(since, query.limit)
        return json_response({"events": events})
