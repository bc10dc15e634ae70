"""Answers the requests of one connection in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from enginehouse.api.doors.fast.inbound import Inbound
from enginehouse.relay.attempts.attempt import NEVER

PassOn = Callable[[int, bytes, bytes], None]
"""Gives another gateway a connection: its descriptor, what the client has sent that nobody has answered, and the state
of a stream that is the beginning of the answer."""

_MOST_WAITING: Final = 16
"""Requests that may wait behind the one being answered before reading pauses."""


class Turns(HttpToolsProtocol):
    """Answers each request of a connection in its turn.

    ``cycle`` is the request received last, ``_current`` the hot request being answered. They differ when the client
    pipelines. ``_ready`` is a hot request that waits only for the client to read earlier answers. ``_asgi_cycle`` is a
    request that the application answers while others wait behind it. ``_successor``: set once another gateway has taken
    over. ``_between``: the last request has been received.
    """

    cycle: Any
    idle_since = NEVER
    _between: bool
    _current: Inbound | None = None
    _ready: Inbound | None = None
    _asgi_cycle: Any = None
    _successor: PassOn | None = None

    def _follow(self, inbound: Inbound, previous: Any) -> None:
        """Let ``inbound`` wait until ``previous`` is answered."""
        inbound.waits = True
        self.pipeline.appendleft((cast(Any, inbound), self.app))
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

    def arrived(self, inbound: Inbound) -> None:
        """Begin a complete request, once its turn has come and the client has read most of earlier answers."""
        if inbound.waits:
            return
        if self.flow.write_paused:
            self._ready = inbound
            return
        self._current = inbound
        if self._successor is None:
            inbound.begin()
        else:
            self.loop.call_soon(self.leave, self._successor)  # not now: the parser may have more for this connection

    def answered(self, inbound: Inbound) -> None:
        """Turn to the next request after ``inbound``, or close.

        The body of a request that was refused is read first, while it comes and for a minute at most, and dropped: a
        close would reset the connection, and many clients that send would not see the answer.
        """
        self._current = None
        if inbound.keep_alive and not self.pipeline:
            self.idle_since = self.loop.time()
            if self._successor is not None:
                self.loop.call_soon(self.leave, self._successor)
            return
        if inbound is self.cycle and not self._between and not inbound.expects:
            self.idle_since = self.loop.time()
        elif not inbound.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def leave(self, pass_on: PassOn) -> None:
        """Give the connection to another gateway by ``pass_on``, now or after the answers under way."""
        self._successor = pass_on

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline else None
        if not isinstance(following, Inbound) or self.transport.is_closing():
            self._asgi_cycle = None if isinstance(following, Inbound) else following
            super().on_response_complete()
            if self._successor is not None:
                self.loop.call_soon(self.leave, self._successor)
            return
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

    def connection_lost(self, exc: Exception | None) -> None:
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

    def eof_received(self) -> None:
        """Treat a client that sends no more as gone. It may still read an answer that ends with the connection."""
        if self._current is not None and self._current.until_close:
            self._current.abort()

    def _break_off(self) -> None:
        """Break the connection, so that the client sees that its answer is cut off."""
        if self._current is not None:
            self._current.abort()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._current is not None and self._current.exchange is not None:
            self._current.exchange.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        ready = self._ready
        if ready is not None and not self.transport.is_closing():
            self._ready = None
            self.arrived(ready)
        elif self._current is not None and self._current.exchange is not None:
            self._current.exchange.resume()
