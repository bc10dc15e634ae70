"""The middleware that has interceptors decide about requests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from enginehouse import Headers, Middleware, PluginError, RequestError
from enginehouse.callers import AdmittedCaller
from enginehouse.middleware import (
    NOT_TO_ENGINE,
    MiddlewareFacts,
    OpenExchange,
    Opening,
    OpenRequest,
    ResponseWriter,
    model_named,
    shown,
)
from enginehouse.requests import Tokens
from enginehouse_interception.filtering_writer import FilteringWriter
from enginehouse_interception.sharing_writer import SharingWriter
from enginehouse_interception.stage import InForce, Stage
from enginehouse_interception.stream_events import as_stream, asks_for_stream
from enginehouse_kit.interceptors import Answer, InterceptedRequest, Interceptor, Join, chosen_interceptors

_NO_TOKENS: Final = Tokens(0, 0)
_NO_REQUEST: Final = InterceptedRequest("", "", "", {}, b"")


class Interceptors:
    """All interceptors, in their order, and the ``outer`` ones: those that an adapter has made.

    The outer ones see requests first, so that what another interceptor answers is allowed, and answers last, so that
    they see what clients get.

    - ``before``: those that look at requests.
    - ``may_join``: one of them may let a request join another one, so answers are kept for that.
    - ``shared``: live answers that may be joined, by the ids of their requests.
    - ``listening``: the streams whose filters want to know of silence.
    - ``intercepted``: counts what became of a request, by the interceptor's type.
    """

    def __init__(self, gateway: MiddlewareFacts) -> None:
        """Raises ``ConfigError``, and ``PluginError``, also for an adapter that has made something else."""
        made = [InForce(*each) for each in chosen_interceptors(gateway.configured)]
        own, outer = [each for each in made if not each.outer], [each for each in made if each.outer]
        for each in outer:
            if not isinstance(each.interceptor, Interceptor):
                problem = f"the adapter of the {each.plugin} must make an Interceptor, got {shown(each.interceptor)}"
                raise PluginError(problem)
        self.before = [each for each in (*outer, *own) if each.asks]
        self._answering = [each for each in (*own, *outer) if each.answers]
        self.may_join = any(each.joins for each in own)
        self.shared: dict[bytes, list[SharingWriter]] = {}
        self.listening: dict[FilteringWriter, None] = {}
        self.intercepted = gateway.intercepted
        self._memory = gateway.memory

    def stages(self, request: InterceptedRequest, answering: InForce | None = None) -> Sequence[Stage]:
        """The filters for the answer to a request, but for that of the interceptor that is ``answering`` it.

        Raises ``RequestError``.
        """
        stages: list[Stage] = []
        try:
            for each in self._answering:
                filter = None if each is answering else each.answer(request)
                if filter is not None:
                    stages.append(Stage(filter, each, self._memory))
        except RequestError as error:
            for made in stages:
                made.broken(error.envelope()["error"])
            raise
        return stages

    def tell_silence(self, now: float) -> None:
        """Tell filters how long their streams have been silent at ``now``, in seconds of the gateway's clock."""
        for writer in list(self.listening):
            writer.tell_silence(now)


class Interception(Middleware):
    """Puts the writers of filters, and of requests that join others, between each request and its client."""

    def use(self, gateway: MiddlewareFacts) -> None:
        self._gateway = gateway
        self.interceptors = Interceptors(gateway)

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        interceptors, memory, sharing = self.interceptors, self._gateway.memory, None
        if interceptors.may_join:
            writer = sharing = SharingWriter(writer, memory)
        filtering = FilteringWriter(writer, memory, opening.path, interceptors.listening, self._gateway.now)
        # an interceptor may change the body
        request = cast("OpenRequest", inner(filtering, opening._replace(decoded=None)))
        filtering.exchange = request
        return InterceptedExchange(interceptors, request, opening, filtering, sharing)

    def check_time(self, now: float) -> None:
        self.interceptors.tell_silence(now)


class InterceptedExchange(OpenExchange):
    """Begins the exchange ``inner`` when all interceptors have let the request go on, or answers it without an engine.

    No other process continues its stream, because filters see the answer in this one only.

    ``filtering`` passes the answer through filters. ``sharing``: lets others join it.
    """

    def __init__(
        self,
        interceptors: Interceptors,
        inner: OpenRequest,
        opening: Opening,
        filtering: FilteringWriter,
        sharing: SharingWriter | None,
    ) -> None:
        self._interceptors = interceptors
        self._inner = inner
        self._opening = opening
        self._filtering = filtering
        self._sharing = sharing
        self._loads = opening.translation is not None and opening.translation.loads
        self._request = _NO_REQUEST
        self._caller: AdmittedCaller | None = None
        self._left_to_ask = iter(interceptors.before)
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    # --- from the client

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        if self._ended:
            return
        path, headers, dialect, *_ = self._opening
        request_id, sharing = self._inner.request_id, self._sharing
        self._caller = caller
        name = caller.name if caller is not None else None
        protocol = dialect.name if dialect is not None else "openai"
        shown = _headers(headers, request_id)
        self._request = InterceptedRequest(path, protocol, model_named(body) or "", shown, body, name)
        if sharing is not None:
            sharing.open(self, (path, asks_for_stream(body)))
            self._interceptors.shared.setdefault(request_id, []).append(sharing)
        if self._interceptors.before:
            self._task = asyncio.create_task(self._decide())
        else:
            self._attempt()

    def cancel(self, error: RequestError | None = None) -> None:
        self._stop()
        self._inner.cancel(error)

    def client_disconnected(self) -> None:
        sharing = self._sharing
        if sharing is not None and not self._ended and sharing.client_left():
            return
        self._leave()

    def _leave(self) -> None:
        """End the request, whose answer no longer has a reader."""
        self._stop()
        self._filtering.release()
        self._inner.client_disconnected()
        if self._sharing is not None:
            self._sharing.close()

    def withdraw(self) -> bool:
        sharing = self._sharing
        if (sharing is not None and sharing.begun) or not self._inner.withdraw():
            return False
        self._stop()
        self._filtering.release()
        if sharing is not None:
            sharing.close()
        return True

    @property
    def backend(self) -> str:
        return self._inner.backend

    def pause(self) -> None:
        self._filtering.paused = True
        if self._sharing is not None:
            self._sharing.pause()
        else:
            self._inner.pause()

    def resume(self) -> None:
        self._filtering.paused = False
        if self._sharing is not None:
            self._sharing.resume()
        else:
            self._inner.resume()

    # --- from the shared answer

    def pace(self, *, stopped: bool) -> None:
        if stopped:
            self._inner.pause()
        else:
            self._inner.resume()

    def ended(self, *, joined: bool) -> None:
        shared, sharing, name = self._interceptors.shared, self._sharing, self._inner.request_id
        assert sharing is not None
        if (writers := shared.get(name)) is not None and sharing in writers:
            writers.remove(sharing)
            if not writers:
                del shared[name]
        if joined and sharing.error is not None:
            self._record(sharing.error.status, sharing.error.code, sharing.error)
        elif joined:
            sharing.settle(partial(self._settled, sharing.status, "joined", 0))

    def lost(self) -> None:
        self._inner.give_back()
        self._task = asyncio.create_task(self._decide())

    def abandoned(self) -> None:
        self._leave()

    # --- before

    async def _decide(self) -> None:
        """Ask the interceptors that have not been asked yet."""
        try:
            for each in self._left_to_ask:
                said = await each.before(self._request)
                if self._loads and isinstance(said, (Answer, Join)):  # nothing else loads or unloads the model
                    continue
                if isinstance(said, Join) and not self._gone and not self._join(said, each):
                    said = await each.before(self._request)  # what it wanted to join may just have ended
                    if isinstance(said, Join) and not self._gone and not self._join(said, each):
                        continue
                if self._gone or isinstance(said, Join):
                    return
                if isinstance(said, Answer):
                    if self._answer(said, each):
                        return
                elif said is not None:
                    self._count(each, "changed")
                    self._request = msgspec.structs.replace(self._request, body=said, model=model_named(said) or "")
        except RequestError as error:
            self._refuse(error)
        except Exception as error:
            self._inner.fail_alone(error)
        else:
            self._attempt()

    @property
    def _gone(self) -> bool:
        """Whether nobody waits for a decision any more."""
        return self._ended or self._inner.has_ended

    def _count(self, by: InForce, outcome: str) -> None:
        self._interceptors.intercepted(by.plugin.type, outcome)

    def _attempt(self) -> None:
        """Have an engine asked, unless an interceptor fails."""
        if self._gone:
            return
        request, self._request = self._request, _NO_REQUEST  # not kept: it may have the texts of its prompt
        try:
            stages = () if self._loads else self._interceptors.stages(request)  # filters see no answer to a load
        except RequestError as error:
            self._refuse(error)
        else:
            self._filtering.filter_with(stages)
            self._inner.begin(request.body, self._caller)

    def _refuse(self, error: RequestError) -> None:
        if not self._ended:
            self._ended = True
            self._inner.refuse(error, self._caller)

    def _stop(self) -> None:
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    # --- without an engine

    def _answer(self, said: Answer, by: InForce) -> bool:
        """Answer as the interceptor ``by`` has said; whether that can be sent. Raises ``RequestError``."""
        try:
            content_type, body = _sendable(said, by, self._request.body)
        except RequestError:
            if not by.passes:
                raise
            return False
        self._count(by, "answered")
        limits = self._inner.admit(self._request.body, self._caller)
        writer = self._filtering
        lines = b"content-type: %s\r\nx-request-id: %s\r\nx-enginehouse-answered-by: %s\r\n%s" % (
            content_type.encode(),
            self._inner.request_id,
            by.plugin.type.encode(),
            limits,
        )
        writer.filter_with(self._interceptors.stages(self._request, by))
        try:
            writer.answer(said.status, lines, body)
        except RequestError as error:
            writer.fail(error)
            self._record(error.status, error.code, error)
        else:
            writer.settle(partial(self._settled, said.status, "answered", len(body)))
        return True

    def _join(self, said: Join, by: InForce) -> bool:
        """Give the client the answer of another request; whether there is one. Raises ``RequestError``."""
        own = self._sharing
        assert own is not None
        wanted = said.request_id.encode(errors="replace")
        sources = {each.root() for each in self._interceptors.shared.get(wanted, ()) if each is not own}
        if len(sources) != 1:  # clients choose ids: which one of several is meant is unknown
            return False
        (source,) = sources
        if source is own or source.form != own.form or not source.is_open:
            return False
        limits = self._inner.admit(self._request.body, self._caller)
        names = self._inner.request_id, wanted, limits
        own.own_lines = b"x-request-id: %s\r\nx-enginehouse-joined: %s\r\n%s" % names
        source.join(own)
        self._count(by, "joined")
        return True

    def _settled(self, status: int, outcome: str, size: int, error: RequestError | None) -> None:
        if error is None:
            self._record(status, outcome, None, size)
        else:
            self._record(error.status, error.code, error)

    def _record(self, status: int, outcome: str, error: RequestError | None, size: int = 0) -> None:
        """End a request that had no engine, unless an operator has ended it."""
        self._ended = True
        if not self._inner.has_ended:
            self._inner.end(status, outcome, error, (size, 0, _NO_TOKENS))


def _headers(headers: Headers, request_id: bytes) -> dict[str, str]:
    passing = ((name.lower(), value) for name, value in headers)
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in passing if name not in NOT_TO_ENGINE}
    found["x-request-id"] = request_id.decode()
    return found


def _sendable(said: Answer, by: InForce, asked: bytes) -> tuple[str, bytes]:
    """The content type and the body of an answer. Raises ``RequestError`` if it cannot be sent."""
    if isinstance(said.body, dict) and said.status < 300 and asks_for_stream(asked):
        try:
            events = as_stream(said.body, asked)
        except (TypeError, ValueError, RecursionError):
            events = None
        if events is not None:
            return "text/event-stream; charset=utf-8", events
    return said.content_type.strip(), by.encoded(said.body)
