"""One request on its way: from its client to an engine and the answer back."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import ClassVar

from enginehouse.domain.errors import Cancelled, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.attempt import NEVER, Attempt
from enginehouse.relay.door import Caller, Door
from enginehouse.relay.headers import origin_lines
from enginehouse.relay.misfit import Misfit
from enginehouse.relay.owner import Owner
from enginehouse.relay.place import Place
from enginehouse.relay.reply import Reply
from enginehouse.relay.retries import Retries
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.model_name import replace_model
from enginehouse.routing.read import read_request

_log = logging.getLogger("enginehouse.relay")
_CLIENT_GONE = 499
_ROUTING, _QUEUED, _SERVING = Phase.ROUTING, Phase.QUEUED, Phase.SERVING  # a look-up takes 70 ns before Python 3.12
_DONE, _FAILED = Phase.DONE, Phase.FAILED
_ADDED = b"%s%sx-request-id: %s\r\nx-enginehouse-overhead-us: %d\r\n"
_MUST_END_AS_DONE = frozenset({"/v1/chat/completions", "/v1/completions"})


class Exchange:
    """A callback state machine between a door and its attempts; a plain request creates no coroutine.

    It commits with the engine's first body byte: until then a failure may still be retried elsewhere, or answered with
    its true status unless the client was told of its progress.
    """

    __slots__ = (
        "_attempt",
        "_body",
        "_caller",
        "_first_byte",
        "_headers",
        "_outgoing",
        "_overhead",
        "_owner",
        "_progress",
        "_reply",
        "_retried",
        "_suspects",
        "_total_deadline",
        "began",
        "path",
        "phase",
        "request_id",
        "requirements",
    )
    repeatable = True
    _worth_a_retry: ClassVar[frozenset[int]] = frozenset({429, 500, 502, 503, 504})

    def __init__(self, owner: Owner, door: Door, path: str, headers: Headers, request_id: bytes) -> None:
        self._owner = owner
        self._reply = Reply(door)
        self._headers = headers
        self._body = self._outgoing = b""
        self._caller: Caller | None = None
        self._attempt: Attempt | None = None
        self._retried: Retries | None = None
        self._progress = False
        self._suspects: tuple[str, ...] = ()
        self._overhead = 0.0
        self._first_byte: float | None = None
        self._total_deadline = NEVER
        self.path = path
        self.request_id = request_id
        self.phase = _ROUTING
        self.requirements: Requirements | None = None
        self.began = perf_counter()

    @property
    def route(self) -> Route | None:
        """Where the request went last."""
        return self._attempt.route if self._attempt is not None else None

    @property
    def ticket(self) -> Ticket | None:
        """What it waits with, or is being served for, at the host of an engine that the gateway launches."""
        place = self._attempt.place if self._attempt is not None else None
        return place.ticket if place is not None else None

    @property
    def over(self) -> bool:
        """Whether the client has its answer, or will never have one."""
        return self.phase is _DONE or self.phase is _FAILED

    # --- from the door

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        """The request is whole: decide where it goes and send it there."""
        self.began = perf_counter()
        self._body = body
        try:
            self.requirements = needs = self._needs(body)
            if caller is not None:
                caller.admit(needs)
                self._caller = caller
            route = self.decide(needs)
            self.send(route, self.body_for(route))
        except RequestError as error:
            self.fail(error)
        except Exception:
            _log.exception("a request met a defect of the gateway")
            self.cancel(RequestError("Internal error; see the gateway's log"))
        self._overhead = perf_counter() - self.began

    def client_gone(self) -> None:
        """The client closed its connection: nothing of the request may go on."""
        if not self.over:
            if self._attempt is not None:
                self._attempt.give_up()
            self._end(_CLIENT_GONE)

    def pause(self) -> None:
        """The client reads more slowly than the engine writes."""
        self._reply.paused = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._reply.paused = False
        if self._attempt is not None:
            self._attempt.resume()

    # --- from operations and the watchdog

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request here and now."""
        if not self.over:
            if self._attempt is not None:
                self._attempt.give_up()
            self.fail(error or Cancelled("The request was cancelled by an operator"))

    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed."""
        attempt = self._attempt
        if attempt is None:
            return
        if now >= self._total_deadline:
            limit = attempt.upstream.timeouts.total
            self.cancel(UpstreamTimeout(f"Backend '{attempt.upstream.name}' did not finish within {limit:g} s"))
        elif now >= attempt.deadline:
            attempt.overdue()

    # --- from attempts

    def outgoing(self, attempt: Attempt) -> bytes:
        """The request as its engine gets it."""
        if self.phase is _QUEUED:
            self.phase = _SERVING
            total = attempt.upstream.timeouts.total
            self._total_deadline = perf_counter() + total if total else NEVER
        return self._written_for(attempt.upstream)

    def answer(self, attempt: Attempt, body: bytes, complete: bool) -> None:
        """A piece of the engine's answer."""
        if not self._reply.begun and not (
            (body or complete) and self._commit(attempt, len(body) if complete else None)
        ):
            return
        if complete:
            self._finish(attempt, body)
        else:
            self._reply.write(body)

    def lost(self, attempt: Attempt, error: RequestError) -> None:
        """The engine failed this request."""
        if self._reply.begun:
            self._retries.give_up(attempt, error)
        else:
            self._retries.lost(attempt, error)

    def found_out(self, attempt: Attempt, error: RequestError, *, ended: bool) -> None:
        """Whether the engine failed this request because it ended by itself."""
        self._retries.found_out(attempt, error, ended=ended)

    def turned_away(self, attempt: Attempt, error: RequestError) -> None:
        """The host of the engine did not let this request through."""
        self._retries.turned_away(attempt, error)

    # --- on the way there

    def _needs(self, body: bytes) -> Requirements:
        return self._owner.router.requirements(read_request(self.path, self._headers, body))

    def decide(self, needs: Requirements, failed: tuple[str, ...] = ()) -> Route:
        """The route, to none of the replicas that ``failed``. Raises ``RequestError`` if there is none."""
        return self._owner.router.route(needs, self._owner.fleet.snapshot, failed)

    def body_for(self, route: Route) -> bytes:
        """The body as it came, but for the model's name and its filters. Raises ``InvalidRequest`` if these fail."""
        body, filters = self._body, self._owner.filters
        if filters:
            body = filters.apply(body, route.requested, route.model)
        return body if route.model == route.requested else replace_model(body, route.model)

    def _written_for(self, upstream: Upstream) -> bytes:
        return upstream.post(self.path, self._headers, self.request_id, self._outgoing)

    def send(self, route: Route, body: bytes, waiting_since: float | None = None) -> None:
        """Attempt to have the request served there; ``waiting_since`` as a ``Place`` has it."""
        owner, chosen, needs = self._owner, route.chosen, self.requirements
        assert needs is not None
        upstream, host = owner.upstreams[chosen.backend], owner.hosts.get(chosen.backend)
        self._outgoing = body
        self._attempt = attempt = Attempt(self, route, upstream)
        if host is None:
            self.phase = _SERVING
            self._total_deadline = self.began + upstream.timeouts.total if upstream.timeouts.total else NEVER
        else:
            self.phase = _QUEUED
            self._total_deadline = NEVER
            priority = self._caller.priority if self._caller is not None else 0
            attempt.place = Place(attempt, host, self.request_id, chosen.replica, priority, waiting_since)
        owner.routed(self.request_id, needs, route)
        attempt.start()
        if needs.stream and self.phase is _QUEUED and not self._progress:
            self._progress = owner.waiting_room.enter(self, self._reply)

    @property
    def _retries(self) -> Retries:
        if self._retried is None:
            self._retried = Retries(self._owner, self)
        return self._retried

    # --- on the way back

    def _commit(self, attempt: Attempt, length: int | None) -> bool:
        """Begin to answer the client, unless this answer is a reason to ask elsewhere.

        ``length`` is that of the whole body where that is known by now.
        """
        head, route = attempt.head, attempt.route
        assert head is not None
        self._first_byte = perf_counter() - attempt.sent_at
        self._judge(attempt, head.status, self._first_byte)
        if head.status in self._worth_a_retry and self._retries.elsewhere(attempt):
            return False
        origin = origin_lines(attempt.upstream.name, route.model, route.reason.value)
        if self._progress:
            self._stop_telling()
        reply = self._reply
        if reply.status:
            self._splice(attempt, origin)
            return True
        lines = _ADDED % (head.lines, origin, self.request_id, self._overhead * 1e6)
        length = None if head.stream else head.length if length is None else length
        reply.begin(head.status, lines, length, head.stream)
        return True

    def _judge(self, attempt: Attempt, status: int, first_byte: float) -> None:
        """What an answer says of its backend."""
        fleet, name = self._owner.fleet, attempt.upstream.name
        if status < 500:
            fleet.succeeded(name)
            attempt.route.chosen.load.answered(first_byte * 1000)
            for suspect in self._suspects:
                fleet.failed(suspect, "answered 500 to what another backend could serve")
        elif status == 500:  # this request may be what is wrong, so one such answer proves nothing
            self._suspects += (name,)
        else:
            fleet.failed(name, f"answered {status}")

    def _splice(self, attempt: Attempt, origin: bytes) -> None:
        """Go on with the engine's answer in the stream in which the client was told of its progress."""
        head, reply = attempt.head, self._reply
        assert head is not None
        if head.stream and head.status == 200:
            reply.join(origin)
        else:
            self._reply = Misfit(reply, attempt.upstream.name, head.status)
        if reply.paused:
            attempt.pause()

    def _stop_telling(self) -> None:
        self._progress = False
        self._owner.waiting_room.leave(self)

    def _finish(self, attempt: Attempt, body: bytes) -> None:
        head = attempt.head
        assert head is not None
        if head.until_close and head.stream and self.path in _MUST_END_AS_DONE and not self._reply.ends_as_done(body):
            self._reply.write(body)
            self.lost(attempt, UpstreamError(f"Backend '{attempt.upstream.name}' closed its stream before the end"))
            return
        self._reply.finish(body)
        self._end(self._reply.status)

    # --- at the end

    def fail(self, error: RequestError) -> None:
        """End the request with an error."""
        if not self._reply.begun:
            self._owner.refused(self.request_id, self.requirements, error)
        if self._reply.status:
            self._reply.break_off(error)
        else:
            self._reply.refuse(error, self.request_id)
        self._end(error.status)

    def _end(self, status: int) -> None:
        self.phase = _DONE if status < 400 else _FAILED
        if self._progress:
            self._stop_telling()
        if self._caller is not None:
            self._caller.leave()
        self._owner.ended(self, status, self._first_byte)
        self._retried = None  # else this and an attempt would wait for the garbage collector together with the exchange
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave()
