"""Opens live requests and ends them when the gateway stops."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence

from enginehouse.domain.errors import CannotContinue, NotFound, ShuttingDown
from enginehouse.domain.request import Headers
from enginehouse.relay.context import RelayContext
from enginehouse.relay.continuation.drains import Drains
from enginehouse.relay.continuation.move import Move, MovedStream
from enginehouse.relay.door import Door, OpenExchange
from enginehouse.relay.engine_job import EngineCall, EngineJob
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.form_job import FormJob, UploadJob
from enginehouse.relay.gathering.gathering_door import GatheringDoor
from enginehouse.relay.gathering.gathering_job import GatheringJob
from enginehouse.relay.hand_over.job import HandOverJob
from enginehouse.relay.headers import find_request_id
from enginehouse.relay.inference_job import InferenceJob
from enginehouse.relay.live_request import LiveRequest
from enginehouse.relay.upload import Upload
from enginehouse.relay.watchdog import Watchdog
from enginehouse.relay.web_socket import WebSocket
from enginehouse.routing.body.form import FormReader


class Relay:
    """Opens exchanges and WebSockets, names them, and has their time limits watched.

    ``live``: every open one. ``drains``: moves streams away from drained backends.
    """

    def __init__(self, context: RelayContext) -> None:
        self.context = context
        self.live = context.live
        self.drains = Drains(context, self._move)
        self._watchdog = Watchdog(self.live, context.progress_reports)
        self._ids = itertools.count(1)
        self._id_prefix = os.urandom(6).hex().encode()
        self._closing = False

    def open(self, door: Door, path: str, headers: Headers) -> OpenExchange:
        """A new exchange; the door then calls its ``begin`` or, if it refuses the request itself, ``cancel``."""
        request_id, context = self._request_id(headers), self.context
        gathering = GatheringDoor(door) if context.gather else None
        if context.router.hands_over:
            exchange = Exchange(HandOverJob(context, path, headers, request_id, gathering), gathering or door)
        elif gathering is not None:
            exchange = Exchange(GatheringJob(context, path, headers, request_id, gathering), gathering)
        else:
            exchange = Exchange(InferenceJob(context, path, headers, request_id), door)
        self._begun(exchange)
        return exchange

    def open_form(self, door: Door, path: str, headers: Headers) -> OpenExchange:
        """A new exchange for a form, which the door treats as one from ``open``."""
        exchange = Exchange(FormJob(self.context, path, headers, self._request_id(headers)), door)
        self._begun(exchange)
        return exchange

    def open_upload(
        self, door: Door, path: str, headers: Headers, reader: FormReader, upload: Upload, length: int | None
    ) -> OpenExchange:
        """A new exchange for a form that may be large.

        The door calls ``begin`` with its beginning once ``reader`` has found the model, and adds the rest to
        ``upload``. ``length``: of the form in bytes, if it is known.
        """
        request_id = self._request_id(headers)
        job = UploadJob(self.context, path, headers, request_id, reader=reader, upload=upload, length=length)
        exchange = Exchange(job, door)
        self._begun(exchange)
        return exchange

    def pass_through(self, door: Door, path: str, headers: Headers, call: EngineCall) -> OpenExchange:
        """A new exchange that passes ``call`` to its engine unread; the door treats it as one from ``open``."""
        exchange = Exchange(EngineJob(self.context, path, headers, self._request_id(headers), call), door)
        self._begun(exchange)
        return exchange

    def web_socket(self, path: str, headers: Headers, call: EngineCall, largest: int) -> WebSocket:
        """A new WebSocket; the door then calls its ``run``. ``largest``: the size limit of an engine's messages."""
        socket = WebSocket(EngineJob(self.context, path, headers, self._request_id(headers), call), largest)
        self._begun(socket)
        return socket

    def refuse_new(self) -> None:
        """Accept no more requests. Live ones may finish, except WebSockets: they have no end of their own."""
        self._closing = True
        for socket in self._web_sockets():
            socket.cancel(_shutting_down())

    async def web_sockets_ended(self) -> None:
        """Wait until no WebSocket is open."""
        await asyncio.gather(*(socket.ended.wait() for socket in self._web_sockets()))

    def close(self) -> None:
        """End every live request and close every connection."""
        self._closing = True
        for request in list(self.live):
            request.cancel(_shutting_down())
        self._watchdog.stop()
        self.drains.close()
        for upstream in self.context.upstreams.values():
            upstream.pool.close()

    def find(self, request_id: str) -> Sequence[LiveRequest]:
        """The live requests with that id. Clients choose ids, so there may be several."""
        wanted = request_id.encode()
        return [request for request in self.live if request.request_id == wanted]

    async def move(self, request_id: str, destination: str) -> MovedStream:
        """Continue a live stream at the backend ``destination``.

        Raises ``NotFound`` for an unknown request or backend, and ``CannotContinue`` if the stream stays where it is.
        """
        return await self._move(self._found(request_id), destination)

    async def join(self, request_id: str, destination: str, engine_request: str) -> MovedStream:
        """Continue a live stream at ``destination``, to which engines have moved it as ``engine_request``.

        Raises as ``move`` does.
        """
        return await self._move(self._found(request_id), destination, engine_request)

    def _found(self, request_id: str) -> LiveRequest:
        found = self.find(request_id)
        if not found:
            raise NotFound(f"There is no live request '{request_id}'")
        return found[0]

    async def _move(self, stream: LiveRequest, destination: str, engine_request: str = "") -> MovedStream:
        if not isinstance(stream, Exchange):
            raise CannotContinue(f"The request stays where it is: {stream.stays}")
        if stream.moving is not None:
            raise CannotContinue("The request is being moved already")
        move = Move(stream, self.context, destination, engine_request)
        stream.moving = move.abandon
        try:
            return await move.run()
        finally:
            stream.moving = None

    def check_open(self) -> None:
        """Raises ``ShuttingDown`` once no more requests are accepted."""
        if self._closing:
            raise _shutting_down()

    def _web_sockets(self) -> Sequence[WebSocket]:
        return [request for request in self.live if isinstance(request, WebSocket)]

    def _begun(self, request: LiveRequest) -> None:
        self.live.add(request)
        self._watchdog.wake()

    def _request_id(self, headers: Headers) -> bytes:
        return find_request_id(headers) or b"req-%s%08x" % (self._id_prefix, next(self._ids))


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The gateway is shutting down; send the request again")
