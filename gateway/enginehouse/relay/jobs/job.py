"""A client's request as a job for an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers, InferenceRequest
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.relay.context import RelayContext
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.door import Caller
from enginehouse.relay.engine_facts import PATHS, with_priority
from enginehouse.relay.jobs.prompt_request import PromptRequest
from enginehouse.relay.upstream.upload import Upload
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.telemetry.log_context import log_context


class Job(ABC):
    """Knows what its request needs, where it can go, what is written to an engine, and how to judge the answer.

    - ``began``: when the request was whole, on the context's clock.
    - ``method``: HTTP's.
    - ``user``: the body's, if any.
    - ``decoded``: the request, if the door has read its body already.
    - ``repeatable``: the request may reach an engine twice.
    - ``retry_statuses``: answers that are a reason to ask another replica.
    - ``raw``: the answer passes as it comes, head first; otherwise a stream passes in whole events, and the head waits
      for the body.
    - ``prepares``: each try begins with ``prepare``.
    - ``continues``: it is what is left of a broken stream, so its tries are no retries of the request.
    - ``history``: keeps what the client gets of a stream, if it can be continued; ``None`` otherwise.
    - ``trace``: set from the beginning if the request is sampled.
    - ``upload``: the rest of a body that follows what ``request`` returns.
    - ``prompt``: made by ``prepare`` where another engine reads the prompt at the same time.
    """

    __slots__ = (
        "_admitted",
        "began",
        "body",
        "caller",
        "context",
        "decoded",
        "headers",
        "history",
        "path",
        "request_id",
        "requirements",
        "trace",
        "user",
    )

    method: str
    repeatable: bool
    raw: bool
    retry_statuses: ClassVar[frozenset[int]]
    prepares: bool = False
    continues: bool = False
    upload: Upload | None = None
    prompt: PromptRequest | None = None

    def __init__(self, context: RelayContext, path: str, headers: Headers, request_id: bytes) -> None:
        self.context = context
        self.path = path
        self.headers = headers
        self.request_id = request_id
        self.body = b""
        self.decoded: InferenceRequest | None = None
        self.caller: Caller | None = None
        self.user: str | None = None
        self._admitted = False
        self.requirements: Requirements | None = None
        self.trace = context.tracer.begin(headers) if context.tracer is not None else None
        self.history: StreamHistory | None = None
        self.began = context.clock.now()

    @property
    def engine_headers(self) -> Headers:
        """The client's headers, with the trace that the engine continues."""
        return self.headers if self.trace is None else self.trace.for_engine(self.headers)

    @property
    def priority(self) -> int:
        """The request's priority in a queue: higher first."""
        return self.caller.priority if self.caller is not None else 0

    def ranked(self, upstream: Upstream, body: bytes) -> bytes:
        """``body`` with the priority of the caller's key, if the engine behind ``upstream`` orders requests by it."""
        if self.caller is None or self.path not in PATHS:
            return body
        order = self.context.engine_facts.priority_order(upstream)
        return with_priority(body, order, self.caller.priority) if order else body

    @property
    def max_retries(self) -> int:
        """The most retries of the request."""
        return self.context.max_retries

    async def prepare(self, route: Route) -> bytes:
        """Make the body for ``route``, if that takes time. Raises ``RequestError`` if the engine cannot use it."""
        return self.body_for(route)

    def admit(self, body: bytes, caller: Caller | None) -> None:
        """Take the whole request, within the limits of ``caller``. Raises ``RequestError``."""
        self.began = self.context.clock.now()
        self.body = body
        self.caller = caller  # first: the record of a refused request names it
        self.requirements = requirements = self._needs(caller)
        if caller is not None:
            caller.admit(requirements)
            self._admitted = True

    def release(self) -> None:
        """Count the request out, if ``admit`` has counted it in."""
        if self._admitted and self.caller is not None:
            self._admitted = False
            self.caller.release()

    @property
    def received(self) -> int:
        """The bytes of the body that came so far."""
        return len(self.body) if self.upload is None else len(self.body) + self.upload.taken

    @property
    def trace_id(self) -> bytes:
        """Empty if the request is not traced."""
        return self.trace.trace_id if self.trace is not None else b""

    def find_route(self, failed: tuple[str, ...]) -> tuple[Route, bytes] | None:
        """Another route and the body for it, or ``None`` if there is none."""
        try:
            with log_context.named(self.request_id, self.trace_id):
                route = self.route(failed)
                return route, self.body_for(route)
        except RequestError:
            return None

    def client_lines(self, lines: bytes, upstream: Upstream) -> bytes:
        """The header lines of an answer, as the client of a ``raw`` job gets them."""
        return lines

    @abstractmethod
    def _needs(self, caller: Caller | None) -> Requirements:
        """The requirements of the request of ``caller``. Raises ``InvalidRequest``."""

    @abstractmethod
    def route(self, failed: tuple[str, ...]) -> Route:
        """Where to send the request, to none of the replicas that ``failed``. Raises ``RequestError`` if nowhere."""

    @abstractmethod
    def body_for(self, route: Route) -> bytes:
        """The body as the engine at the end of ``route`` gets it. Raises ``InvalidRequest``."""

    @abstractmethod
    def request(self, upstream: Upstream, body: bytes) -> bytes:
        """The whole request as it is written to an engine."""

    @abstractmethod
    def judge(self, route: Route, status: int, first_byte: float, suspects: tuple[str, ...]) -> tuple[str, ...]:
        """Count an answer for or against its backend; ``first_byte`` is the time to it in seconds.

        Takes and returns the suspects: backends whose answer to this request counts against them only if another
        backend can serve it.
        """
