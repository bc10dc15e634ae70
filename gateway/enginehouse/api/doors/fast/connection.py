"""A client's connection to the fast door."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from enginehouse.api.doors.admission import Admission, is_from_browser
from enginehouse.api.doors.fast.idle_sweep import IdleSweep
from enginehouse.api.doors.fast.inbound import ClientConnection, HotHead, Inbound, last_response
from enginehouse.api.doors.fast.known_heads import KnownHeads
from enginehouse.api.doors.fast.request_lines import RequestLines
from enginehouse.api.doors.fast.slow_reader import SlowReader
from enginehouse.api.doors.framing import check_framing, head_without_upgrade
from enginehouse.domain.errors import InvalidRequest
from enginehouse.relay.attempt import NEVER

_MOST_WAITING = 16
"""Requests that may wait behind the one being answered before reading pauses."""
_PATIENCE = 64 * 1024
_A_SECOND = 1024
"""What a second of waiting costs of ``_PATIENCE``."""


class FastDoor(HttpToolsProtocol):
    """A client's connection. Hot requests are those for the inference endpoints; the application answers all others.

    ``cycle`` is the request received last, ``_current`` the hot request being answered. They differ when the client
    pipelines. ``_ready`` is a hot request that waits only for the client to read earlier answers. ``_asgi_cycle`` is a
    request that the application answers while others wait behind it.

    ``_between`` is true when the last request has been received, and nothing since.

    ``_patience_used`` grows by the bytes received since the last complete head or piece of a body, and by one KiB for
    each second of waiting for more. So no head is endless, and none takes much longer than a minute.
    """

    cycle: Any

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
        self.idle_since = NEVER
        self._cors = cors
        self._idle_sweep = idle_sweep
        self._current: Inbound | None = None
        self._ready: Inbound | None = None
        self._asgi_cycle: Any = None
        self._patience_used = 0
        self._lines = RequestLines()
        self._in_head = False
        self._between = True
        self._reader = SlowReader()
        self._known_heads = KnownHeads()

    # --- from the parser

    def on_message_begin(self) -> None:
        self._in_head = True
        self._between = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Keep a hot request; pass any other on to the application."""
        self._patience_used = 0
        self._in_head = False
        self._lines.check(self.parser.get_method(), self.url)
        version = self.parser.get_http_version()
        check_framing(version, self.headers)
        if self.transport.is_closing():
            raise InvalidRequest("A request follows one that ends the connection")
        if self.parser.should_upgrade():
            self._check_upgrade()
            return
        path = self.admission.hot_paths.get(self.url)
        if path is None or self.parser.get_method() != b"POST" or (self._cors and is_from_browser(self.headers)):
            self._pass_on()
            self.headers = []  # so that no trailer passes for a header
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        previous = self.cycle
        self.cycle = inbound = Inbound(self._client, path, self.headers, keep_alive, version != "1.0")
        self.headers = []
        inbound.expects = self.expect_100_continue
        if previous is not None and not previous.response_complete:
            inbound.waits = True
            self.pipeline.appendleft((cast(Any, inbound), self.app))
            self._queued_behind(previous)
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
        if self.pipeline:
            self._queued_behind(previous)

    def _queued_behind(self, previous: Any) -> None:
        """Read on after a request entered the pipeline: a connection that is not read does not notice a disconnect.

        Reading pauses only for a long pipeline, and in ``Inbound`` for a long body.
        """
        if len(self.pipeline) == 1 and not isinstance(previous, Inbound):
            self._asgi_cycle = previous
        if len(self.pipeline) < _MOST_WAITING:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if isinstance(cycle, Inbound):
            self._patience_used = 0
            cycle.receive(body)
        elif not cycle.response_complete:
            self._patience_used = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._patience_used = 0
        if self.headers:  # _feed will parse this request once more, or it has trailers
            if self.parser.should_upgrade():
                return
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
        self._between = True
        if isinstance(self.cycle, Inbound):
            self.cycle.received()
        else:
            super().on_message_complete()

    # --- from the requests

    def arrived(self, inbound: Inbound) -> None:
        """Begin a complete request, once its turn has come and the client has read most of earlier answers."""
        if inbound.waits:
            return
        if self.flow.write_paused:
            self._ready = inbound
            return
        self._current = inbound
        inbound.begin()

    def answered(self, inbound: Inbound) -> None:
        """Turn to the next request after ``inbound``, or close."""
        self._current = None
        if not inbound.keep_alive:
            self.transport.close()
        if self.pipeline or not inbound.keep_alive:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline else None
        if not isinstance(following, Inbound) or self.transport.is_closing():
            self._asgi_cycle = None if isinstance(following, Inbound) else following
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.pipeline.pop()
        self._asgi_cycle = None
        self.loop.call_soon(self._turn_to, following)  # a direct call would recurse once per pipelined request

    def _turn_to(self, inbound: Inbound) -> None:
        if self.transport.is_closing():
            inbound.client_disconnected()
            return
        inbound.waits = False
        self.flow.resume_reading()
        if inbound.whole:
            self.arrived(inbound)
        elif inbound.expects:
            inbound.ask_for_body()

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._client = ClientConnection(self.admission, transport, self.flow, self.arrived, self.answered)
        self.idle_since = self.loop.time()
        self._idle_sweep.add(self.check_silence, self.loop)

    def data_received(self, data: bytes) -> None:
        self.idle_since = NEVER
        self._unset_keepalive_if_required()
        if self._awaits_hot() and (known := self._known_heads.read(data)) is not None:
            self._receive_known(*known)
            return
        between = self._between
        self._patience_used += len(data)
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
            self._lines.clear()
        if self._patience_used > _PATIENCE:
            self._refuse(InvalidRequest(f"More than {_PATIENCE} bytes of head"))

    def _awaits_hot(self) -> bool:
        """Whether the last request was hot and is answered, and nothing has been received since."""
        cycle = self.cycle
        answered = isinstance(cycle, Inbound) and cycle.response_complete and not self.pipeline
        return answered and self._between and not self.transport.is_closing()

    def _receive_known(self, head: HotHead, body: bytes) -> None:
        """Begin a request whose head is known. The parser sees nothing of it."""
        headers = head.headers.with_length(len(body))
        self.cycle = inbound = Inbound(self._client, head.path, headers, True, True)
        inbound.check_known_head(len(body))
        inbound.receive(body)
        inbound.received()

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
                    return
                rest = memoryview(rest)[upgrade.args[0] :]
            version = self.parser.get_http_version()
            self._lines.read_again()
            self.parser.feed_data(head_without_upgrade(self.parser.get_method(), self.url, version, self.headers))

    def eof_received(self) -> None:
        """Take a client that sends no more for one that has left. It may still read what ends with the connection."""
        if self._current is not None and self._current.until_close:
            self._current.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_sweep.discard(self.check_silence)
        self._unset_keepalive_if_required()  # uvicorn leaves it set after a reset, and so keeps all this for a minute
        lost = [self._current, self._ready, self.cycle, *(cycle for cycle, _ in self.pipeline)]
        self._current = self._ready = None
        if isinstance(self.cycle, Inbound):
            self.cycle = None
        if self._asgi_cycle is not None:
            self._asgi_cycle.disconnected = True
            self._asgi_cycle.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()
        for inbound in [each for each in lost if isinstance(each, Inbound)]:
            inbound.client_disconnected()
        self._client.release()
        self.parser = cast(Any, None)  # it has this connection: the two would wait for the garbage collector

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._current is not None and self._current.exchange is not None:
            self._current.exchange.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        ready, self._ready = self._ready, None
        if ready is not None and not self.transport.is_closing():
            self.arrived(ready)
        elif self._current is not None and self._current.exchange is not None:
            self._current.exchange.resume()

    def _refuse(self, error: InvalidRequest) -> None:
        """Answer 400 and close; in the middle of another answer, only break the connection."""
        if self.transport.is_closing():
            return
        self.logger.warning("Refused: %s", error.message)
        if self._answering():
            self.transport.abort()
            return
        if self.cycle is not None and not isinstance(self.cycle, Inbound):
            self.cycle.disconnected = True
        self.transport.write(last_response(error))
        self.transport.close()

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
            self.transport.abort()
        if now - self.idle_since > self.timeout_keep_alive:
            self.transport.close()
        elif self._waits_for_client():
            self._patience_used += _A_SECOND
            if self._patience_used > _PATIENCE:
                self.transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether a request has begun to arrive and the gateway waits for the rest of it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return self._patience_used > 0
        whole = cycle.whole if isinstance(cycle, Inbound) else not cycle.more_body
        return not whole and not self.pipeline and not self.flow.read_paused
