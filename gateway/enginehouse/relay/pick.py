"""One request of which the gateway decides where it goes, and somebody else moves the bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from enginehouse.domain.errors import ModelNotFound, NoHealthyBackend, RequestError, UpstreamError
from enginehouse.domain.replica import ReplicaState, Route, Snapshot, SomeBackends
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.heads import AnswerHead, error_lines
from enginehouse.relay.jobs.job import InferenceJob, Suspects
from enginehouse.relay.request import CLIENT_LEFT, LiveRequests, Request
from enginehouse.telemetry.answer_meter import NO_ANSWER, AnswerMeter

_LONGEST_S: Final = 3600.0
"""After so long, a request without a report of its end counts as ended."""


def is_among(address: tuple[str, int], among: Collection[str]) -> bool:
    """Whether ``among`` names ``address``, with or without its port."""
    host, port = address
    return host in among or f"{host}:{port}" in among or f"[{host}]:{port}" in among


class PickingJob(InferenceJob):
    """A request of which the gateway only decides where it goes.

    ``among``: the addresses that it may go to, each with or without its port; ``None`` for all.
    """

    keeps = False  # the gateway does not read its stream
    among: Collection[str] | None = None

    def route(self, failed: tuple[str, ...], *, alone: bool = False) -> Route:
        try:
            return super().route(failed)
        except ModelNotFound:
            assert self.requirements is not None
            if self.among is None or not self.context.fleet.snapshot.candidates(self.requirements.model):
                raise
            raise NoHealthyBackend(self.requirements.model, {"among": sorted(self.among)}) from None

    def _snapshot(self) -> Snapshot:
        context, among = self.context, self.among
        if among is None:
            return context.fleet.snapshot
        there = {name for name, each in context.upstreams.items() if is_among(each.address, among)}
        return SomeBackends(context.fleet.snapshot, there)

    def _counted(self, body: bytes) -> bytes:
        """``body`` as it is: the client would get the usage, if the gateway asked for it."""
        return body


class Picked(NamedTuple):
    """Where a request goes.

    - ``addresses``: host and port of the engine, then of others that may be asked instead, in this order.
    - ``backend``, ``model``: what was chosen.
    - ``body``: as the engine must get it. It is the client's own object if nothing changes.
    - ``lines``: header lines for the engine, instead of the client's of the same names.
    - ``withheld``: the names of the client's headers that must not reach the engine.
    """

    addresses: Sequence[tuple[str, int]]
    backend: str
    model: str
    body: bytes
    lines: bytes
    withheld: frozenset[bytes]


class PickClient(Protocol):
    """Whoever asks where a request goes. One of the two is called, once, possibly before ``Pick.begin`` returns."""

    def picked(self, choice: Picked) -> None:
        """The request goes there now."""

    def refused(self, status: int, lines: bytes, body: bytes) -> None:
        """The client gets this answer: its header ``lines``, each ending in CRLF, and its ``body``."""


class Pick(Request):
    """One request, as whoever moves its bytes reports it. It counts as load of its engine until one of the ends.

    The ends are ``client_left``, ``ended`` and ``broke``; after one of them, further reports do nothing.
    ``fallbacks``: how many further addresses are wanted.
    """

    def __init__(
        self, job: PickingJob, client: PickClient, live_requests: LiveRequests, fallbacks: int, address: str
    ) -> None:
        super().__init__(job, live_requests)
        self._picking = job
        self._client = client
        self._fallbacks = fallbacks
        self.address = address
        self._caller: AdmittedCaller | None = None
        self._form = job.context.form(job.path)
        self._meter: AnswerMeter | None = None
        self._suspects: Suspects = ()
        live_requests.begin(self)

    @property
    def why_not_movable(self) -> str | None:
        return "its bytes do not pass through this gateway"

    # --- from the client

    def admitted(self, caller: AdmittedCaller | None) -> None:
        """Note the ``caller`` of the request, which was admitted."""
        self._caller = caller

    def limit(self, among: Collection[str]) -> None:
        """Let the request go to these addresses only, each with or without its port. To be called before ``begin``."""
        self._picking.among = among

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        """Decide about the request, which is whole now; or soon, if it has to wait."""
        super().begin(body, caller or self._caller)

    def client_left(self) -> None:
        """End the request, whose answer has no reader any more."""
        self._end(CLIENT_LEFT, "client_left")

    def answered(self, status: int, *, stream: bool = False, first_byte: float | None = None) -> None:
        """The engine begins its answer with this ``status``. It may be a ``stream``.

        ``first_byte``: the seconds that this took, if it was not just now.
        """
        attempt = self.attempt
        if self._status or attempt is None or attempt.answered_at:
            return
        now = self.job.context.clock.now()
        attempt.head = AnswerHead(status, b"", None, False, False)
        attempt.begins_answer(now)
        self._meter = AnswerMeter(stream)
        took = now - attempt.sent_at if first_byte is None else first_byte
        self._suspects = self.job.judge(attempt.route, status, took, self._suspects)

    def piece(self, piece: bytes) -> None:
        """A piece of the answer's body passes."""
        if self._meter is not None:
            self._meter.add(piece)

    def ended(self, status: int = 200) -> None:
        """The answer is whole."""
        attempt = self.attempt
        if self._status or attempt is None:
            return
        if attempt.answered_at:
            self.job.served(attempt.route, status, self._suspects)
        self._end(status, "served")

    def broke(self, why: str) -> None:
        """The engine could not be reached, or it broke off."""
        attempt = self.attempt
        if not self._status and attempt is not None:
            error = UpstreamError(f"Backend '{attempt.upstream.name}' failed: {why}")
            self._dispatch.blame(error)
            self._end(error.status, error.code, error)

    def served_by(self, host: str, port: int) -> None:
        """The engine at this address has answered: those before it in the choice have not."""
        attempt = self.attempt
        if attempt is not None and attempt.upstream.address != (host, port):
            self._dispatch.blame(UpstreamError(f"Backend '{attempt.upstream.name}' did not answer"))

    # --- from operators and the sweep over live requests

    def cut_off(self, why: str) -> None:
        self.broke(why)

    def check_time(self, now: float) -> None:
        attempt = self.attempt
        if attempt is None:
            return
        if now >= attempt.total_deadline:
            self.fail(attempt.expire_total())
        elif attempt.sent_at and now >= attempt.sent_at + _LONGEST_S:
            self.ended()

    # --- from the dispatch

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        attempt.hand_out()
        chosen, upstream, job = attempt.route.chosen, attempt.upstream, self.job
        told = job.trace_lines + job.caller_lines(upstream)
        lines = b"%sx-request-id: %s\r\n%s" % (upstream.key_line, job.request_id, told)
        addresses = self._addresses(attempt)
        choice = Picked(addresses, chosen.backend, chosen.model, attempt.body, lines, upstream.withheld)
        self._client.picked(choice)

    def fail(self, error: RequestError) -> None:
        """End the request with ``error``. The client gets it, unless the request has gone to an engine."""
        job, attempt = self.job, self.attempt
        if self._status:
            return
        picked = attempt is not None and attempt.sent_at
        if not picked:
            job.context.refused(job.request_id, job.key, job.requirements, error)
        self._end(error.status, error.code, error)
        if not picked:
            lines = error_lines(error, job.request_id)
            self._client.refused(error.status, lines, self._form.error_body(error.status, error.envelope()))

    # --- inside

    def _addresses(self, attempt: Attempt) -> Sequence[tuple[str, int]]:
        """The engine's address, and those of others that can serve the same body at once, the best first."""
        job, context, first = self.job, self.job.context, attempt.route
        addresses, tried = [attempt.upstream.address], [first.chosen.replica]
        while len(addresses) <= self._fallbacks and (route := job.reroute(first, tuple(tried))) is not None:
            tried.append(route.chosen.replica)
            other = context.upstreams[route.chosen.backend].address
            ready = route.chosen.state is ReplicaState.READY
            if ready and other[0] and other not in addresses and job.body_for(route) == attempt.body:
                addresses.append(other)
        return addresses

    def _end(self, status: int, outcome: str, error: RequestError | None = None) -> None:
        if self._status:
            return
        answer, attempt = self._meter.total() if self._meter is not None else NO_ANSWER, self.attempt
        if attempt is not None and outcome == "served" and status < 400:
            attempt.counted(answer)
        self.end(status, outcome, error, answer, attempt.route.chosen.model if attempt is not None else "")
