"""Opens live requests."""

from __future__ import annotations

import os

from enginehouse.domain.errors import ShuttingDown
from enginehouse.domain.inference_request import InferenceRequest
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.protocols import Protocol
from enginehouse.relay.answers.gathering_door import GatheringDoor
from enginehouse.relay.context import RelayContext
from enginehouse.relay.door import Door, OpenExchange
from enginehouse.relay.exchanges.exchange import Exchange
from enginehouse.relay.exchanges.pick import Pick, PickClient
from enginehouse.relay.guarding.guarded_exchange import GuardedExchange
from enginehouse.relay.guarding.guarding_door import GuardingDoor
from enginehouse.relay.heads.headers import find_request_id
from enginehouse.relay.jobs.engine_job import EngineCall, EngineJob
from enginehouse.relay.jobs.form_job import FormJob, UploadJob
from enginehouse.relay.jobs.gathering_job import GatheringJob
from enginehouse.relay.jobs.hand_over_job import HandOverJob
from enginehouse.relay.jobs.inference_job import InferenceJob
from enginehouse.relay.jobs.mirror_job import MirrorJob
from enginehouse.relay.jobs.picking_job import PickingJob
from enginehouse.relay.live.endings import Endings
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.relay.live.watchdog import Watchdog
from enginehouse.relay.protocols.translated_exchange import TranslatedExchange
from enginehouse.relay.upstream.upload import Upload
from enginehouse.relay.web_sockets.web_socket import WebSocket
from enginehouse.routing.body.form import FormReader


class Opener:
    """Opens exchanges and WebSockets, names them, and has their time limits watched.

    ``closed``: no more requests are accepted.
    """

    def __init__(self, context: RelayContext, endings: Endings, progress_reports: ProgressReports) -> None:
        self.closed = False
        self._context = context
        self._endings = endings
        self._live = endings.live
        self._watchdog = Watchdog(endings.live, progress_reports, context.clock.now, context.waiting_room)
        self._named = 0
        self._id_prefix = b"req-%s-" % os.urandom(6).hex().encode()

    def check_open(self) -> None:
        """Raises ``ShuttingDown`` once no more requests are accepted."""
        if self.closed:
            raise shutting_down()

    def open(self, door: Door, path: str, headers: Headers, decoded: InferenceRequest | None = None) -> OpenExchange:
        """A new exchange; the door then calls its ``begin`` or, if it refuses the request itself, ``cancel``.

        ``decoded``: the request, if the door has read its body already.
        """
        protocol = self._context.protocols.get(path)
        if protocol is not None and decoded is None:
            return self.open_translated(door, path, headers, protocol)
        return self._open(door, path, headers, decoded)

    def open_translated(self, door: Door, path: str, headers: Headers, protocol: Protocol) -> OpenExchange:
        """A new exchange in the client's ``protocol``, which the door treats as one from ``open``."""
        return TranslatedExchange(self._context, door, path, headers, protocol, self._open_translated)

    def _open_translated(self, door: Door, path: str, headers: Headers, keep_alive: float | None) -> OpenExchange:
        return self._open(door, path, headers, keep_alive=keep_alive)

    def _open(
        self,
        door: Door,
        path: str,
        headers: Headers,
        decoded: InferenceRequest | None = None,
        keep_alive: float | None = None,
    ) -> OpenExchange:
        request_id, context = self._request_id(headers), self._context
        watching: GuardingDoor | None = None
        if context.guards is not None:
            decoded = None  # a guard may change the body
            if context.guards.watches_answers:
                door = watching = GuardingDoor(door, context.guards, context.engine_memory)
        gathering = GatheringDoor(door, context.engine_memory) if context.gather else None
        job: InferenceJob
        if context.router.hands_over:
            job = HandOverJob(context, path, headers, request_id, gathering)
        elif gathering is not None:
            job = GatheringJob(context, path, headers, request_id, gathering)
        else:
            job = InferenceJob(context, path, headers, request_id)
        job.decoded = decoded
        job.keep_alive = keep_alive
        if path in context.protocols:
            job.protocol_line = b"x-enginehouse-protocol: native\r\n"
        exchange = Exchange(job, gathering or door, self._endings)
        if gathering is not None:
            gathering.cancel = exchange.cancel
        self._begun(exchange)
        if context.guards is None:
            return exchange
        if watching is not None:
            watching.cancel = exchange.cancel
        return GuardedExchange(context.guards, exchange, job, watching, path, headers)

    def open_mirror(
        self, door: Door, path: str, headers: Headers, request_id: bytes, real: RequestRecord
    ) -> OpenExchange:
        """A new exchange for a copy of the request with the record ``real``."""
        exchange = Exchange(MirrorJob(self._context, path, headers, request_id, real), door, self._endings)
        self._begun(exchange)
        return exchange

    def open_form(self, door: Door, path: str, headers: Headers) -> OpenExchange:
        """A new exchange for a form, which the door treats as one from ``open``."""
        exchange = Exchange(FormJob(self._context, path, headers, self._request_id(headers)), door, self._endings)
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
        job = UploadJob(self._context, path, headers, request_id, reader=reader, upload=upload, length=length)
        exchange = Exchange(job, door, self._endings)
        self._begun(exchange)
        return exchange

    def pass_through(self, door: Door, path: str, headers: Headers, call: EngineCall) -> OpenExchange:
        """A new exchange that passes ``call`` to its engine unread; the door treats it as one from ``open``."""
        job = EngineJob(self._context, path, headers, self._request_id(headers), call)
        exchange = Exchange(job, door, self._endings)
        self._begun(exchange)
        return exchange

    def open_pick(
        self,
        client: PickClient,
        path: str,
        headers: Headers,
        fallbacks: int = 0,
        address: str = "",
    ) -> Pick:
        """A new request whose bytes somebody else moves; ``client`` learns where it goes. ``address``: the client's."""
        job = PickingJob(self._context, path, headers, self._request_id(headers))
        pick = Pick(job, client, self._endings, fallbacks, address)
        self._begun(pick)
        return pick

    def web_socket(self, path: str, headers: Headers, call: EngineCall, largest: int) -> WebSocket:
        """A new WebSocket; the door then calls its ``run``. ``largest``: the size limit of an engine's messages."""
        job = EngineJob(self._context, path, headers, self._request_id(headers), call)
        socket = WebSocket(job, largest, self._endings)
        self._begun(socket)
        return socket

    def stop_watching(self) -> None:
        """Watch no request any more."""
        self._watchdog.stop()

    def _begun(self, request: LiveRequest) -> None:
        self._live[request] = None
        self._watchdog.wake()

    def _request_id(self, headers: Headers) -> bytes:
        theirs = find_request_id(headers)
        if theirs:
            return theirs
        self._named += 1
        return b"%s%d" % (self._id_prefix, self._named)


def shutting_down() -> ShuttingDown:
    """The error for requests that the gateway does not serve any more."""
    return ShuttingDown("The gateway is shutting down; send the request again")
