"""Live requests: opened for the doors, moved from engine to engine, ended when the gateway stops."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from enginehouse.config.routing import MirrorSettings
from enginehouse.domain.errors import NotFound
from enginehouse.relay.context import RelayContext
from enginehouse.relay.live.endings import Endings
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.moved_stream import MovedStream
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.relay.mirrors import Mirrors
from enginehouse.relay.moves.drains import Drains
from enginehouse.relay.opener import Opener, shutting_down
from enginehouse.telemetry.record_delivery import RecordDelivery


class Relay:
    """All live requests.

    ``live``: every open one. ``endings``: makes the records of those that end. ``drains``: moves streams away from
    drained backends. ``mirrors``: sends copies of requests to other models. ``open`` and its like are those of
    ``Opener``: the compiled gateway calls them without a step between.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery, progress_reports: ProgressReports) -> None:
        self.context = context
        self.endings = endings = Endings(context, delivery)
        self.progress_reports = progress_reports
        self.live = endings.live
        self.drains = Drains(context, self.live)
        self._opener = opener = Opener(context, endings, progress_reports)
        self.mirrors = Mirrors(context, opener.open_mirror)
        self.check_open = opener.check_open
        self.open = opener.open
        self.open_translated = opener.open_translated
        self.open_form = opener.open_form
        self.open_upload = opener.open_upload
        self.pass_through = opener.pass_through
        self.web_socket = opener.web_socket
        self.open_pick = opener.open_pick

    def mirror(self, settings: Mapping[str, MirrorSettings]) -> None:
        """Send copies of requests as ``settings`` say, by model."""
        self.mirrors.configure(settings)
        self.endings.on_ended = self.mirrors.ended if settings else None

    def refuse_new(self) -> None:
        """Accept no more requests. Live ones may finish, except WebSockets: they have no end of their own."""
        self._opener.closed = True
        for request in self._endless():
            request.cancel(shutting_down())

    async def web_sockets_ended(self) -> None:
        """Wait until no WebSocket is open."""
        await asyncio.gather(*(request.closed() for request in self._endless()))

    def close(self) -> None:
        """End every live request and close every connection."""
        self._opener.closed = True
        for request in list(self.live):
            request.cancel(shutting_down())
        self._opener.stop_watching()
        self.drains.close()
        for upstream in self.context.upstreams.values():
            upstream.pool.close()

    def find(self, request_id: str) -> Sequence[LiveRequest]:
        """The live requests with that id. Clients choose ids, so there may be several."""
        wanted = request_id.encode()
        return [request for request in self.live if request.request_id == wanted]

    async def move(self, request_id: str, destination: str, cause: str = "operator") -> MovedStream:
        """Continue a live stream at the backend ``destination``; ``cause``: who wants that, for its trace.

        Raises ``NotFound`` for an unknown request or backend, and ``CannotContinue`` if the stream stays where it is.
        """
        return await self._found(request_id).move(destination, cause=cause)

    async def join(self, request_id: str, destination: str, engine_request: str) -> MovedStream:
        """Continue a live stream at ``destination``, to which engines have moved it as ``engine_request``.

        Raises as ``move`` does.
        """
        return await self._found(request_id).move(destination, engine_request, "rescheduling")

    def _found(self, request_id: str) -> LiveRequest:
        found = self.find(request_id)
        if not found:
            raise NotFound(f"There is no live request '{request_id}'")
        return found[0]

    def _endless(self) -> Sequence[LiveRequest]:
        return [request for request in self.live if request.endless]
