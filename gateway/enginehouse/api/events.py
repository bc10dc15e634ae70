"""``GET /api/events``: what happens, as it happens."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.endless import EndlessStreams
from enginehouse.api.entrance import Entrance
from enginehouse.api.guard import admin_only
from enginehouse.telemetry.broadcast import Broadcast


class Events:
    """The door to the broadcast."""

    def __init__(self, entrance: Entrance, broadcast: Broadcast, streams: EndlessStreams) -> None:
        self._entrance = entrance
        self._broadcast = broadcast
        self._streams = streams

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The endpoint, which asks for an admin key where keys are set."""
        return [Route("/api/events", admin_only(self._entrance, self.watch))]

    async def watch(self, request: Request) -> Response:
        """Server-sent events until the client leaves."""
        return self._streams.answer(request, self._broadcast.watch(), "text/event-stream")
