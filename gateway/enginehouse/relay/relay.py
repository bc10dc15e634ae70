"""Live requests: opened for clients, moved from engine to engine, ended when the gateway stops."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from enginehouse.domain.errors import NotFound, ShuttingDown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.domain.requirements import InferenceRequest
from enginehouse.domain.ticket import Ticket
from enginehouse.interfaces.protocols import ClientProtocol, TranslatedRequest
from enginehouse.relay.answers.gathering_writer import GatheringWriter
from enginehouse.relay.asides import Asides
from enginehouse.relay.context import RelayContext
from enginehouse.relay.events.stream_form import form_of_protocol
from enginehouse.relay.heads import find_request_id
from enginehouse.relay.jobs.engine_job import EngineCall, EngineJob
from enginehouse.relay.jobs.job import InferenceJob, Job
from enginehouse.relay.live.live_request import LiveRequest, MovedStream, each_alone
from enginehouse.relay.middleware import Opening
from enginehouse.relay.moves.drains import Drains
from enginehouse.relay.pick import Pick, PickClient, PickingJob
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse.relay.request import LiveRequests
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.relay.web_socket_request import Enter, WebSocketRequest
from enginehouse.telemetry.record_delivery import RecordDelivery


class Relay:
    """All live requests: opens them for clients, names them, and has their time limits watched.

    ``requests``: watches them, and reports those that end. ``live``: every open one. ``drains``: moves streams away
    from drained backends. ``asides``: sends requests of observers.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery) -> None:
        self.context = context
        self.requests = LiveRequests(context, delivery)
        self.live = live = self.requests.live
        self.drains = Drains(context, live)
        self.asides = Asides(context, self.requests)
        self.closed = False
        self._named = 0
        self._id_prefix = b"req-%s-" % os.urandom(6).hex().encode()

    # --- for clients

    def check_open(self) -> None:
        """Raises ``ShuttingDown`` once no more requests are accepted."""
        if self.closed:
            raise shutting_down()

    def open(
        self, writer: ResponseWriter, path: str, headers: Headers, decoded: InferenceRequest | None = None
    ) -> OpenExchange:
        """A new exchange; the caller then calls its ``begin`` or, to refuse the request itself, ``cancel``.

        ``decoded``: the request, if its body has been read already.
        """
        context = self.context
        protocol = context.protocols.get(path)
        if protocol is not None and decoded is None:
            return self.open_translated(writer, path, headers, protocol)
        if context.interception is None:
            return self._exchange(writer, path, headers, decoded=decoded)
        return self._open(writer, Opening(path, headers, decoded=decoded))

    def open_translated(
        self, writer: ResponseWriter, path: str, headers: Headers, protocol: ClientProtocol
    ) -> OpenExchange:
        """A new exchange in the client's ``protocol``, to be treated as one from ``open``."""
        translation = self.context.translation
        assert translation is not None
        return translation.open(Opening(path, headers, protocol), writer, self._open)

    def open_job(self, kind: Callable[..., Job], writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange:
        """A new exchange for another ``kind`` of job, to be treated as one from ``open``."""
        job = kind(self.context, path, headers, self.request_id(headers))
        return RelayedRequest(job, writer, self.requests)

    def open_pick(self, client: PickClient, path: str, headers: Headers, fallbacks: int = 0, address: str = "") -> Pick:
        """A new request whose bytes somebody else moves; ``client`` learns where it goes. ``address``: the client's."""
        job = PickingJob(self.context, path, headers, self.request_id(headers))
        return Pick(job, client, self.requests, fallbacks, address)

    def web_socket(
        self, path: str, headers: Headers, call: EngineCall, enter: Enter, plugin: PluginId, address: str
    ) -> WebSocketRequest:
        """A new WebSocket to an engine. ``plugin``, which carries its messages, then calls its ``serve``.

        ``address``: the client's.
        """
        job = EngineJob(self.context, path, headers, self.request_id(headers), call)
        return WebSocketRequest(job, enter, plugin, self.requests, address)

    # --- for operators

    def find(self, request_id: str) -> Sequence[LiveRequest]:
        """The live requests with that id. Clients choose ids, so there may be several."""
        wanted = request_id.encode()
        return [request for request in self.live if request.request_id == wanted]

    def waiting_by_replica(self, waiting: Collection[Ticket]) -> Counter[str]:
        """How many of the tickets ``waiting`` wait for each replica. Those of a backend with a limit name none."""
        if not waiting:
            return Counter()
        routes = {live.ticket: live.route.chosen.replica for live in self.live if live.ticket and live.route}
        return Counter(routes.get(ticket, ticket.replica) for ticket in waiting)

    async def move(
        self, request_id: str, destination: str, engine_request: str = "", cause: str = "operator"
    ) -> MovedStream:
        """Continue a live stream at the backend ``destination``; ``cause``: who wants that, for its trace.

        ``engine_request``: its id there, if engines have moved it there themselves. Raises ``NotFound`` for an unknown
        request or backend, and ``CannotContinue`` if the stream stays where it is.
        """
        found = self.find(request_id)
        if not found:
            raise NotFound(f"There is no live request '{request_id}'")
        return await found[0].move(destination, engine_request, cause)

    def refuse_new(self) -> None:
        """Accept no more requests. Live ones may finish, except WebSockets: they have no end of their own."""
        self.closed = True
        each_alone(self._endless(), lambda request: request.cancel(shutting_down()))

    async def web_sockets_ended(self) -> None:
        """Wait until no WebSocket is open."""
        await asyncio.gather(*[request.closed() for request in self._endless()])

    def close(self) -> None:
        """End every live request and close every connection."""
        self.closed = True
        each_alone(list(self.live), lambda request: request.cancel(shutting_down()))
        self.requests.stop()
        self.drains.close()
        for upstream in self.context.upstreams.values():
            upstream.pool.close()

    def _endless(self) -> Sequence[LiveRequest]:
        return [request for request in self.live if request.endless]

    # --- inside

    def _open(self, writer: ResponseWriter, opening: Opening) -> OpenExchange:
        interception = self.context.interception
        if interception is None:
            return self._open_request(writer, opening)
        return interception.open(opening, writer, self._open_request)

    def _open_request(self, writer: ResponseWriter, opening: Opening) -> RelayedRequest:
        path, headers, protocol, translation, backend, decoded = opening
        request = self._exchange(writer, path, headers, translation, backend, decoded)
        if protocol is not None and translation is None and path not in self.context.protocols:
            request.reply.form = form_of_protocol(path, protocol)  # the path has parts, or the request was forwarded
        return request

    def _exchange(
        self,
        writer: ResponseWriter,
        path: str,
        headers: Headers,
        translation: TranslatedRequest | None = None,
        backend: str = "",
        decoded: InferenceRequest | None = None,
    ) -> RelayedRequest:
        request_id, context = self.request_id(headers), self.context
        job = InferenceJob(context, path, headers, request_id)
        job.prepares = context.router.hands_over
        if context.gather:
            job.gathering = writer = GatheringWriter(writer)
        job.decoded, job.backend = decoded, backend
        if translation is not None:
            job.translation, job.keep_alive = translation, translation.keep_alive
        if path in context.protocols:
            job.protocol_line = b"x-enginehouse-protocol: native\r\n"
        return RelayedRequest(job, writer, self.requests)

    def request_id(self, headers: Headers) -> bytes:
        """The id of a request with ``headers``: the client's, else a new one."""
        theirs = headers.request_id if isinstance(headers, RepeatedHeaders) else find_request_id(headers)
        if theirs:
            return theirs
        self._named += 1
        return b"%s%d" % (self._id_prefix, self._named)


def shutting_down() -> ShuttingDown:
    """The error for requests that the gateway does not serve any more."""
    return ShuttingDown("The gateway is shutting down; send the request again")
