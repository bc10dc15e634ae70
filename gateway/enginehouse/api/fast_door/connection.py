"""A client's connection."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from enginehouse.api.entrance import Entrance
from enginehouse.api.fast_door.idlers import Idlers
from enginehouse.api.fast_door.inbound import Inbound, status_line
from enginehouse.api.framing import check_framing, head_without_upgrade
from enginehouse.domain.errors import InvalidRequest
from enginehouse.relay.attempt import NEVER

_MOST_WAITING = 16
_MOST_UNHEARD = 64 * 1024
_A_SECOND = 1024


class FastDoor(HttpToolsProtocol):
    """A client's connection. ``entrance`` and ``_cors`` are set by ``fast_door``.

    ``cycle`` is the request received last, ``_current`` the hot one being answered; pipelining makes them differ.
    ``_held`` is a hot one whose turn has come and that waits until the client has read earlier answers, ``_cold`` one
    that the application answers while others wait behind it.
    ``_unheard`` counts the bytes since the last whole head or piece of a body; each second that the client lets the
    gateway wait for more counts as one KiB. So no head is endless, and none takes much longer than a minute.
    """

    entrance: Entrance
    cycle: Any
    idle_since = NEVER
    _idlers: Idlers
    _current: Inbound | None = None
    _held: Inbound | None = None
    _cold: Any = None
    _unheard = 0
    _cors = False

    # --- from the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """The head is whole: keep the request, or pass it on to the application."""
        self._unheard = 0
        version = self.parser.get_http_version()
        check_framing(version, self.headers)
        if self.transport.is_closing():
            raise InvalidRequest("There is nothing to say after the last request")
        if self.parser.should_upgrade():
            self._asked_to_upgrade()
            return
        path = self.entrance.hot_paths.get(self.url)
        if path is None or self.parser.get_method() != b"POST" or (self._cors and self._from_browser()):
            self._pass_on()
            self.headers = []  # so that no trailer passes for a header
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        previous = self.cycle
        self.cycle = inbound = Inbound(self, path, self.headers, keep_alive, version != "1.0")
        self.headers = []
        inbound.expects = self.expect_100_continue
        if previous is not None and not previous.response_complete:
            inbound.waits = True
            self.pipeline.appendleft((cast(Any, inbound), self.app))
            self._queued_behind(previous)
        inbound.enter()
        if inbound.expects:
            self._send_on(inbound)

    def _asked_to_upgrade(self) -> None:
        """Let only a WebSocket through; ``_feed`` then ignores the wish for any other protocol."""
        if self.parser.get_method() == b"CONNECT":
            raise InvalidRequest("CONNECT is not spoken here: this is no forward proxy")
        if self._should_upgrade():
            if self.cycle is not None and not self.cycle.response_complete:
                raise InvalidRequest("A connection becomes a WebSocket only after its last answer")
            self._pass_on()

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def _from_browser(self) -> bool:
        return any(name == b"origin" for name, _ in self.headers)

    def _pass_on(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        previous = self.cycle
        super().on_headers_complete()
        if self.pipeline:
            self._queued_behind(previous)

    def _queued_behind(self, previous: Any) -> None:
        """A request has been put into the pipeline; read on all the same, for else nobody notices a client that leaves.

        Only a long pipeline, and in ``Inbound`` a long body, have to wait.
        """
        if len(self.pipeline) == 1 and not isinstance(previous, Inbound):
            self._cold = previous
        if len(self.pipeline) < _MOST_WAITING:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def _send_on(self, inbound: Inbound) -> None:
        """Tell the client to send the body, if that is wanted and its turn has come."""
        if not inbound.waits and not inbound.whole:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        cycle = self.cycle
        if isinstance(cycle, Inbound):
            self._unheard = 0
            cycle.receive(body)
        elif not cycle.response_complete:
            self._unheard = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._unheard = 0
        if self.headers:  # this is a request that _feed parses once more, or there were trailers
            if self.parser.should_upgrade():
                return
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
        if isinstance(self.cycle, Inbound):
            self.cycle.received()
        else:
            super().on_message_complete()

    # --- from the requests

    def arrived(self, inbound: Inbound) -> None:
        """``inbound`` is whole, and begins when its turn has come and the client has read most of earlier answers."""
        if inbound.waits:
            return
        if self.flow.write_paused:
            self._held = inbound
            return
        self._current = inbound
        inbound.begin()

    def answered(self, inbound: Inbound) -> None:
        """``inbound`` has its answer."""
        self._current = None
        if not inbound.keep_alive:
            self.transport.close()
        if self.pipeline or not inbound.keep_alive:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        """Turn to the next request, or wait for one."""
        following = self.pipeline[-1][0] if self.pipeline else None
        if not isinstance(following, Inbound) or self.transport.is_closing():
            self._cold = None if isinstance(following, Inbound) else following
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.pipeline.pop()
        self._cold = None
        self.loop.call_soon(self._turn_to, following)  # at once, a long pipeline would become a deep recursion

    def _turn_to(self, inbound: Inbound) -> None:
        if self.transport.is_closing():
            return
        inbound.waits = False
        self.flow.resume_reading()
        if inbound.whole:
            self.arrived(inbound)
        elif inbound.expects:
            self._send_on(inbound)

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._idlers.add(self)

    def data_received(self, data: bytes) -> None:
        """The client sends something."""
        self.idle_since = NEVER
        self._unheard += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, InvalidRequest) else InvalidRequest(f"This is no HTTP: {error}"))
            return
        if self._unheard > _MOST_UNHEARD:
            self._refuse(InvalidRequest(f"More than {_MOST_UNHEARD} bytes of head"))

    def _feed(self, data: bytes) -> None:
        """Parse ``data``, and requests that ask for another protocol once more without that.

        The parser takes everything that follows them for that protocol, their body included.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self._idlers.discard(self)
                    self.handle_websocket_upgrade()
                    return
                rest = memoryview(rest)[upgrade.args[0] :]
            version = self.parser.get_http_version()
            self.parser.feed_data(head_without_upgrade(self.parser.get_method(), self.url, version, self.headers))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it all its requests."""
        self._idlers.discard(self)
        current, self._current, self._held = self._current, None, None
        if isinstance(self.cycle, Inbound):
            self.cycle = None
        if self._cold is not None:
            self._cold.disconnected = True
            self._cold.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()
        if current is not None:
            current.client_gone()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        super().pause_writing()
        if self._current is not None and self._current.exchange is not None:
            self._current.exchange.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        held, self._held = self._held, None
        if held is not None and not self.transport.is_closing():
            self.arrived(held)
        elif self._current is not None and self._current.exchange is not None:
            self._current.exchange.resume()

    def _refuse(self, error: InvalidRequest) -> None:
        """Answer what cannot be understood; in the middle of an answer there is nothing left but to break off."""
        if self.transport.is_closing():
            return
        self.logger.warning("Refused: %s", error.message)
        if self._answering():
            self.transport.abort()
            return
        body = msgspec.json.encode(error.envelope())
        self.transport.write(
            status_line(400)
            + b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    def _answering(self) -> bool:
        """Whether an answer is, or may be, on its way to the client."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(self.pipeline) or not isinstance(cycle, Inbound) or cycle.exchange is not None

    # --- from the idlers

    def look(self, now: float) -> None:
        """Close the connection if its client lets it wait for too long; called every second."""
        if now - self.idle_since > self.timeout_keep_alive:
            self.transport.close()
        elif self._waits_for_client():
            self._unheard += _A_SECOND
            if self._unheard > _MOST_UNHEARD:
                self.transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether a request has begun to arrive, and only its client can bring it further."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return self._unheard > 0
        whole = cycle.whole if isinstance(cycle, Inbound) else not cycle.more_body
        return not whole and not self.pipeline and not self.flow.read_paused
