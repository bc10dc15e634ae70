"""A client's connection to the fast door."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from enginehouse.aio.write_batch import batched
from enginehouse.api.doors.admission import Admission, is_from_browser
from enginehouse.api.doors.fast.head_cache import HeadCache
from enginehouse.api.doors.fast.inbound import ClientConnection, Inbound, last_response
from enginehouse.api.doors.fast.request_lines import RequestLines
from enginehouse.api.doors.fast.time_limits import IdleSweep, SlowReader
from enginehouse.api.doors.fast.turns import PassOn, Turns
from enginehouse.api.doors.framing import check_framing, head_without_upgrade
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.relay.attempts.attempt import NEVER

_MOST_CHARGED: Final = 64 * 1024
_A_SECOND: Final = 1024
_REST_WITHIN_S: Final = 5.0
"""A client that has its answer and sends nothing more of its request for so long is not waited for."""


class FastDoor(Turns):
    """A client's connection. Hot requests are those for the inference endpoints; the application answers all others.

    ``_in_head`` is true until a head is complete and in order, ``_between`` when the last request has been received,
    and nothing since. ``_charged``: the bytes since the last complete head or piece of a body, and a KiB for each
    second of waiting, so that no head is endless, and none takes much longer than a minute.
    ``keeps``: cleared if the next answer is the connection's last one. ``resumes``: the state of the stream that
    answers the next request, from another gateway.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        admission: Admission,
        cors: bool,
        idle_sweep: IdleSweep,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.admission = admission
        self._cors = cors
        self._idle_sweep = idle_sweep
        self._charged = 0
        self._lines = RequestLines()
        self._in_head = False
        self._between = True
        self.keeps = True
        self.resumes = b""
        self._reader = SlowReader()
        self._known_heads = HeadCache()

    # --- from the parser

    def on_message_begin(self) -> None:
        self._in_head = True
        self._between = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, compiled: it is called for every header."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Keep a hot request; pass any other on to the application."""
        self._charged = 0
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._lines.check(method, self.url, chunked=check_framing(version, self.headers))
        if self.transport.is_closing():
            raise InvalidRequest("A request follows one that ends the connection")
        path = self.admission.hot_paths.get(self.url)
        if self.parser.should_upgrade():
            self._check_upgrade()
        elif path is None or method != b"POST" or (self._cors and is_from_browser(self.headers)):
            self._pass_on()
            self.headers = []  # so that no trailer passes for a header
        else:
            self._keep(path, version)
        self._in_head = False

    def _keep(self, path: str, version: str) -> None:
        keep_alive = self.keeps and version != "1.0" and self.parser.should_keep_alive()
        previous = self.cycle
        self.cycle = inbound = Inbound(self._client, path, self.headers, keep_alive, version != "1.0")
        inbound.saved, self.resumes = self.resumes, b""
        self.headers = []
        inbound.expects = self.expect_100_continue
        if previous is not None and not previous.response_complete:
            self._follow(inbound, previous)
        inbound.check_head()
        if inbound.expects:
            inbound.ask_for_body()

    def _check_upgrade(self) -> None:
        """Pass on a WebSocket's handshake. ``_feed`` ignores a request to upgrade to any other protocol."""
        if self.parser.get_method() == b"CONNECT":
            raise InvalidRequest("CONNECT is not supported: this is no forward proxy")
        if self._should_upgrade():
            if self.cycle is not None and not self.cycle.response_complete:
                raise InvalidRequest("A connection becomes a WebSocket only after its last answer")
            self._pass_on()

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def _pass_on(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        previous = self.cycle
        super().on_headers_complete()
        if not self.keeps:
            self.cycle.keep_alive = False
        if self.pipeline:
            self._queued_behind(previous)

    def on_body(self, body: bytes) -> None:
        """Pass a piece of a body on. It is dropped if the request is answered already; then only its time counts."""
        cycle = self.cycle
        self._lines.body += len(body)
        if cycle.response_complete:
            self._charged -= len(body)
            self.idle_since = self.loop.time()
            return
        self._charged = 0
        if isinstance(cycle, Inbound):
            cycle.receive(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._charged = 0
        if self.headers:  # _feed will parse this request once more, or it has trailers
            if self.parser.should_upgrade():
                return
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
        self._between = True
        if isinstance(self.cycle, Inbound):
            if self.cycle.response_complete:  # a refused one
                self.transport.close()
            self.cycle.received()
        else:
            super().on_message_complete()

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        wrapped = batched(transport, self.admission.writes)
        super().connection_made(cast(asyncio.Transport, wrapped))
        address = self.client[0] if self.client else ""
        self._client = ClientConnection(self.admission, wrapped, self.flow, self.arrived, self.answered, address)
        self.idle_since = self.loop.time()
        self._idle_sweep.add(self.check_silence, self.loop)

    # --- to another gateway

    def leave(self, pass_on: PassOn) -> None:
        super().leave(pass_on)
        if self.transport.is_closing():
            return
        received = self._received()
        if received is None:
            if self._current is not None and self._current.exchange is None:
                self._current.begin()
            return
        self._pass_connection(pass_on, received, b"")

    def pass_stream(self, pass_on: PassOn) -> None:
        """Give the connection to another gateway in the middle of a stream that it can continue."""
        current = self._current
        if current is None or self.transport.is_closing() or not self._in_order():
            return
        saved = current.save_stream()
        if saved is not None:
            self._pass_connection(pass_on, *saved)

    def _pass_connection(self, pass_on: PassOn, received: bytes, stream: bytes) -> None:
        transport = self._client.transport
        pass_on(transport.get_extra_info("socket").fileno(), received, stream)
        transport.abort()  # closes only this process's descriptor

    def _in_order(self) -> bool:
        """Whether no other request is there, and everything has been sent."""
        in_order = self._between and not self.pipeline and self._ready is None
        return in_order and not self._client.transport.get_write_buffer_size()

    def _received(self) -> bytes | None:
        """What the client has sent for its next answer; ``None`` unless the connection can be passed on now.

        A request that an engine or a page has is answered first.
        """
        cycle, current = self.cycle, self._current
        if not self._in_order():
            return None
        if current is not None:
            return current.take_back()
        return b"" if cycle is None or cycle.response_complete else None

    def shutdown(self) -> None:
        """Close the connection after the answers under way, unless another gateway gets it."""
        if self._successor is None:
            super().shutdown()

    def eof_received(self) -> None:
        """Close the connection of a client that sends no more, as the event loop would, but first send what is kept."""
        super().eof_received()
        self._client.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Hand the transport over to ``WebSocketProtocol``, whose writes are part of no batch."""
        self.config.ws_max_size = self.admission.max_body  # a reload may have changed it
        self.transport = self._client.transport.released()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_sweep.discard(self.check_silence)
        super().connection_lost(exc)
        self._let_go()

    def _let_go(self) -> None:
        """Drop what refers back to this connection: the cycles would wait for the garbage collector."""
        self._client.release()
        self.parser = cast(Any, None)

    def data_received(self, data: bytes) -> None:
        self.idle_since = NEVER
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        if self._awaits_hot() and (known := self._known_heads.read(data)) is not None:
            path, headers, body = known
            self._receive_known(path, headers, body)
            return
        between = self._between
        self._charged += len(data)
        self._lines.add(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, InvalidRequest) else InvalidRequest(f"This is not HTTP: {error}"))
            return
        if between and self._between and isinstance(self.cycle, Inbound):
            self._known_heads.learn(data, self.cycle)
        if not self._in_head:
            self._lines.clear(whole=self._between)
        if self._charged > _MOST_CHARGED:
            self._refuse(InvalidRequest(f"More than {_MOST_CHARGED} bytes of head"))

    def _awaits_hot(self) -> bool:
        """Whether the last request was hot and is answered, and nothing has been received since."""
        cycle = self.cycle
        answered = isinstance(cycle, Inbound) and cycle.response_complete and not self.pipeline
        return answered and self._between and not self._client.transport.is_closing()

    def _receive_known(self, path: str, headers: Headers, body: bytes) -> None:
        """Begin a request whose head is known. The parser sees nothing of it."""
        self.cycle = inbound = Inbound(self._client, path, headers, True, True)
        inbound.receive_known(body)

    def _feed(self, data: bytes) -> None:
        """Parse ``data``. Requests to upgrade to another protocol than WebSocket are parsed again without ``Upgrade``.

        Else the parser would take everything after their head, the body included, for the other protocol.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self._idle_sweep.discard(self.check_silence)
                    self.handle_websocket_upgrade()
                    self._let_go()
                    return
                rest = memoryview(rest)[upgrade.args[0] :]
            version = self.parser.get_http_version()
            self._lines.read_again()
            self.parser.feed_data(head_without_upgrade(self.parser.get_method(), self.url, version, self.headers))

    def _refuse(self, error: InvalidRequest) -> None:
        """Answer 400 and close. No second answer to a request that has one, and in the middle of one only break off."""
        if self.transport.is_closing():
            return
        self.logger.warning("Refused: %s", error.message)
        if self._answering():
            self._break_off()
            return
        if self.cycle is not None and not isinstance(self.cycle, Inbound):
            self.cycle.disconnected = True
        if not self._reads_rest():
            self.transport.write(last_response(error))
        self.transport.close()

    def _reads_rest(self) -> bool:
        """Whether the body of a request arrives that is already answered."""
        return not (self._in_head or self._between) and self.cycle is not None and self.cycle.response_complete

    def _answering(self) -> bool:
        """Whether the client may have received part of an answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if self.pipeline:
            return True
        return cycle.exchange is not None if isinstance(cycle, Inbound) else bool(cycle.response_started)

    # --- from the idle sweep

    def check_silence(self, now: float) -> None:
        """Close the connection if the client has been silent for too long. Called every second."""
        if self._reader.has_stalled(self.transport.get_write_buffer_size(), now, self.admission.client_timeout):
            self._break_off()
        if self._successor is not None:
            self.leave(self._successor)
        if now - self.idle_since > (self.timeout_keep_alive if self._between else _REST_WITHIN_S):
            self.transport.close()
        elif self._waits_for_client():
            self._charged += _A_SECOND
            if self._charged > _MOST_CHARGED:
                self.transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether a request has begun to arrive and the gateway waits for the rest of it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return self._charged > 0 or not self._between
        whole = cycle.whole if isinstance(cycle, Inbound) else not cycle.more_body
        return not whole and not self.pipeline and not self.flow.read_paused
