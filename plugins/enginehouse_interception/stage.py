"""An interceptor in force, and one of its filters for one answer: what both say is checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from enginehouse import RequestError
from enginehouse.errors import UpstreamError
from enginehouse.middleware import EngineMemory, EngineShare, GuardFailed, GuardRefused, shown
from enginehouse.runtime import await_plugin, log_plugin_failure, plugin_failed, run_within, wrong_result
from enginehouse_interception.stream_events import KINDS, NEED_NO_DATA
from enginehouse_kit.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    ChosenInterceptor,
    Event,
    InterceptedRequest,
    Interceptor,
    Join,
    Refuse,
)

T = TypeVar("T")

_LEAST_STATUS: Final = 400
_MOST_STATUS: Final = 599


_ALLOWED = "None, Refuse, Change or Answer"
_ALLOWED_WITH_JOIN = "None, Refuse, Change, Answer or Join"
Said = bytes | Answer | Join | None
"""What an interceptor says of a request: another body, an answer, that it joins another one; ``None`` lets it go on."""
_LARGEST: Final = 64 << 20
"""Bytes of events that one filter may hold."""
_FAILED: Final = object()
Complete = Callable[[Event], Event]
"""Makes an event whole that a filter has made. Raises ``ValueError`` and the like if it is nonsense."""


class InForce(ChosenInterceptor):
    """An interceptor whose results are checked."""

    __slots__ = ()

    @property
    def asks(self) -> bool:
        """Whether it looks at requests."""
        return type(self.interceptor).before is not Interceptor.before

    @property
    def answers(self) -> bool:
        """Whether it may look at answers."""
        return type(self.interceptor).answer is not Interceptor.answer

    @property
    def joins(self) -> bool:
        """Whether it may let a request join another one."""
        return self.asks and not self.outer

    async def before(self, request: InterceptedRequest) -> Said:
        """What it says of a request. Raises ``RequestError``."""
        return await self.ask(self.interceptor.before, self._read, request)

    def _read(self, said: object) -> Said:
        if said is None or (self.joins and isinstance(said, Join) and isinstance(said.request_id, str)):
            return said
        if isinstance(said, Refuse):
            raise self.refusal(said)
        if isinstance(said, Change) and isinstance(said.body, (bytes, dict)):
            return self.encoded(said.body)
        if not isinstance(said, Answer):
            allowed = _ALLOWED_WITH_JOIN if self.joins else _ALLOWED
            raise wrong_result(self.plugin, f"must return {allowed}, got {shown(said)}")
        if not (isinstance(said.status, int) and 200 <= said.status <= 599 and isinstance(said.content_type, str)):
            raise wrong_result(self.plugin, f"must answer with a status from 200 to 599 and a type, got {shown(said)}")
        if not isinstance(said.body, (bytes, dict)) or not _is_line(said.content_type):
            raise wrong_result(self.plugin, f"must answer with bytes or a dict, and a content type, got {shown(said)}")
        return said

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        """Its filter for the answer to a request, if it wants one. Raises ``RequestError``."""
        try:
            filter: object = self.interceptor.answer(request)
        except BaseException as error:
            failure = self.failure(error)
            if failure is None:
                return None
            raise failure from error
        if filter is None or isinstance(filter, AnswerFilter):
            return filter
        wrong = wrong_result(self.plugin, f"must return an AnswerFilter or None, got {shown(filter)}")
        if not self.passes:
            raise wrong
        return None

    async def ask(self, method: Callable[..., Awaitable[object]], read: Callable[[object], T], *facts: object) -> T:
        """What the plugin says about ``facts``, as ``read`` makes it; that of ``None`` if it fails and requests pass.

        Raises ``RequestError``: the plugin's refusal, or its failure.
        """
        try:
            return read(await run_within(self.timeout, await_plugin(self.plugin, method, *facts)))
        except GuardRefused:
            raise
        except TimeoutError:
            log_plugin_failure(self.plugin, f"did not answer within {self.timeout:g} s")
            if not self.passes:
                text = f"The {self.plugin} did not answer within {self.timeout:g} s"
                raise GuardFailed(text, details=self.plugin.details) from None
        except RequestError:
            if not self.passes:
                raise
        return read(None)

    def failure(self, error: BaseException) -> RequestError | None:
        """The error that follows from one that the plugin raised; ``None`` if requests pass."""
        if isinstance(error, GuardRefused):
            return error
        failure = error if isinstance(error, RequestError) else plugin_failed(self.plugin, error)
        return None if self.passes else failure

    def refusal(self, said: Refuse) -> RequestError:
        """The error that the client gets."""
        if not (_is_error(said.status) and said.code and isinstance(said.message, str)):
            problem = f"must refuse with a status from {_LEAST_STATUS} to {_MOST_STATUS}, a code and a message"
            return wrong_result(self.plugin, f"{problem}, got {shown(said)}")
        return GuardRefused(said.status, said.code, said.message)

    def encoded(self, body: bytes | dict[str, object]) -> bytes:
        """A body that the plugin has made."""
        if isinstance(body, bytes):
            return body
        try:
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise plugin_failed(self.plugin, error) from error


def _is_error(status: object) -> bool:
    return isinstance(status, int) and _LEAST_STATUS <= status <= _MOST_STATUS


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()


class Stage:
    """A filter on ``terms``. One that fails where requests pass is out of the way from then on.

    ``reads``: it wants events, or must know when a stream ends. ``takes_whole``: it wants answers that are not streams
    when they are whole. ``listens``: it wants to know of silence.
    """

    __slots__ = ("_events", "_failed", "_filter", "_has", "_held", "_share", "listens", "reads", "takes_whole", "terms")

    def __init__(self, filter: AnswerFilter, terms: InForce, memory: EngineMemory) -> None:
        self.terms = terms
        self._filter = filter
        kind: type = type(filter)
        self._has = has = _overridden(kind)
        self._events = "event" in has
        self.listens = "silent" in has
        self.reads = self._events or self.listens or "end" in has
        self.takes_whole = "whole" in has
        self._held: list[Event] = []
        self._share = EngineShare(memory, "answer", _LARGEST)
        self._failed = False

    @property
    def sees_head(self) -> bool:
        """Whether it looks at heads."""
        return "head" in self._has

    def head(self, status: int, headers: Mapping[str, str]) -> Mapping[str, str | None]:
        """The headers that are changed, and those that are taken out. Raises ``RequestError``, as all methods do."""
        said = self._say("head", self._filter.head, status, headers)
        if said is None or said is _FAILED:
            return {}
        if isinstance(said, Mapping) and all(_is_header(name, value) for name, value in said.items()):
            return said
        self._fail(wrong_result(self.terms.plugin, f"must return headers or None from head, got {shown(said)}"))
        return {}

    def event(self, event: Event, size: int, complete: Complete) -> Sequence[Event]:
        """What goes on of an event of ``size`` bytes."""
        if not self._events:
            return (event,)
        said = self._say("event", self._filter.event, event)
        if said is None:
            if why := self._share.take(size):
                raise UpstreamError(f"The engine's answer was dropped while the {self.terms.plugin} held it: {why}")
            self._held.append(event)
            return ()
        if said is event or said is _FAILED:
            return (*self._released(), event) if self._held else (event,)
        return self._in_place_of_held(said, complete, (event,))

    def silent(self, seconds: float, complete: Complete) -> Sequence[Event]:
        """What the client gets after ``seconds`` without an event."""
        said = self._say("silent", self._filter.silent, seconds)
        return () if said is None or said is _FAILED else self._in_place_of_held(said, complete)

    def end(self, complete: Complete) -> Sequence[Event]:
        """The last events."""
        said = self._say("end", self._filter.end) if "end" in self._has else None
        return self._released() if said is None or said is _FAILED else self._in_place_of_held(said, complete)

    def whole(self, body: bytes) -> bytes | Awaitable[bytes]:
        """What the filter makes of a whole answer, at once or as an awaitable."""
        said = self._say("whole", self._filter.whole, body) if "whole" in self._has else None
        if isinstance(said, Awaitable):
            return self.terms.ask(lambda: said, lambda said: self._whole(said, body))
        return self._whole(said, body)

    def _whole(self, said: object, body: bytes) -> bytes:
        """The answer after what the filter has ``said`` about it."""
        try:
            if isinstance(said, (bytes, dict)):
                return self.terms.encoded(said)
            if isinstance(said, Refuse):
                raise self.terms.refusal(said)
            if said is not None and said is not _FAILED:
                problem = f"must return bytes, a dict, Refuse or None from whole, got {shown(said)}"
                raise wrong_result(self.terms.plugin, problem)
        except RequestError as error:
            self._fail(error)
        return body

    def broken(self, error: Mapping[str, Any]) -> None:
        """Tell of the error that ended the answer."""
        self.release()
        if "broken" not in self._has or self._failed:
            return
        try:
            self._filter.broken(error)
        except BaseException as raised:
            log_plugin_failure(self.terms.plugin, f"failed with {type(raised).__name__}", raised)

    def release(self) -> None:
        """Hold nothing any more."""
        self._held = []
        self._share.give_back()

    def _say(self, name: str, method: Callable[..., object], *facts: object) -> object:
        if self._failed:
            return _FAILED
        try:
            return method(*facts)
        except BaseException as error:
            self._fail(error)
            return _FAILED

    def _released(self) -> Sequence[Event]:
        held = self._held
        self.release()
        return held

    def _in_place_of_held(self, said: object, complete: Complete, otherwise: Sequence[Event] = ()) -> Sequence[Event]:
        """The events that a filter has made. ``otherwise``: what passes after the held ones if it has made nonsense."""
        try:
            if isinstance(said, Refuse):
                raise self.terms.refusal(said)
            made: Sequence[Any] = said if isinstance(said, Sequence) and not isinstance(said, (str, bytes)) else (said,)
            if not all(_is_event(each) for each in made):
                problem = f"must return events, with data if they are no texts, Refuse or None, got {shown(said)}"
                raise wrong_result(self.terms.plugin, problem)
            events = [complete(each) for each in made]
        except BaseException as error:
            self._fail(error)
            return (*self._released(), *otherwise)
        self.release()
        return events

    def _fail(self, error: BaseException) -> None:
        """Be out of the way from now on, as the filter has made ``error``. Raises ``RequestError`` if none may fail."""
        failure = self.terms.failure(error)
        if failure is not None:
            raise failure from (None if failure is error else error)
        self._failed = True


@lru_cache(maxsize=1024)
def _overridden(product: type) -> frozenset[str]:
    """The methods that a filter has itself."""
    names = ("head", "event", "whole", "silent", "broken", "end")
    return frozenset(name for name in names if getattr(product, name) is not getattr(AnswerFilter, name))


def _is_event(value: object) -> bool:
    return (
        isinstance(value, Event)
        and value.kind in KINDS
        and isinstance(value.text, str)
        and isinstance(value.data, dict)
        and isinstance(value.choice, int)
        and (value.kind in NEED_NO_DATA or bool(value.data))
    )


def _is_header(name: object, value: object) -> bool:
    """Whether a filter may set this header: a token, and a value that cannot begin another line (RFC 9110, 5)."""
    return (
        isinstance(name, str)
        and (value is None or isinstance(value, str))
        and name.isascii()
        and name.replace("-", "").replace("_", "").isalnum()
        and all(" " <= each <= "\xff" and each != "\x7f" for each in value or "")
    )
