"""Interceptors: see requests before they are routed, and answers before clients get them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from enginehouse import ConfigError
from enginehouse.runtime import PluginId
from enginehouse.services import Configured
from enginehouse.settings import InterceptorSettings, misspelt

__all__ = [
    "Answer",
    "AnswerFilter",
    "Change",
    "ChosenInterceptor",
    "Event",
    "EventKind",
    "InterceptedRequest",
    "Interceptor",
    "InterceptorAdapter",
    "Join",
    "Passed",
    "Refuse",
    "Whole",
    "chosen_interceptors",
]

EventKind = Literal["text", "thinking", "tool", "refusal", "usage", "finish", "error", "other"]


class Refuse(msgspec.Struct, frozen=True):
    """The client gets an error with this HTTP status, code and message."""

    status: int
    code: str
    message: str


class Change(msgspec.Struct, frozen=True):
    """The body is replaced. A ``dict`` is sent as JSON."""

    body: bytes | dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """The client gets this answer, and no engine gets the request.

    A ``dict`` is sent as JSON. If the client asked for a stream and the ``dict`` is a whole answer of a chat or a
    completion, it is sent as a stream. ``bytes`` are sent as they are: whole server-sent events with the content type
    ``text/event-stream``, and a whole answer with any other. Either is OpenAI's, whatever the client speaks.
    """

    status: int
    body: bytes | dict[str, Any]
    content_type: str = "application/json"


class Join(msgspec.Struct, frozen=True):
    """The client gets the answer that the live request with this id gets, from its beginning.

    If that has just ended, the interceptor is asked once more. The request goes its own way if there is no such request
    in this process, if its path is another one or only one of both asks for a stream, or if more of its answer has
    passed than is kept.
    """

    request_id: str


class InterceptedRequest(msgspec.Struct, frozen=True, dict=True):
    """A client's request, as interceptors see it. Other protocols are translated to OpenAI's before."""

    path: str
    protocol: str
    """``openai``, or the name of the protocol that the client speaks."""
    model: str
    headers: Mapping[str, str]
    """By lower-case names, without those that carry secrets. ``x-request-id`` is always there."""
    body: bytes
    """As the client sent it: JSON may write each character as an escape, so search ``text``."""
    caller: str | None = None
    """The name of the caller's key."""

    @cached_property
    def text(self) -> Sequence[str]:
        """The texts of the prompt, decoded: one for each message, or for each prompt of a completion or an embedding.

        The text of a message has its content, the texts of all parts of that, and the arguments of its calls of tools,
        each on a line of its own. There are none if the body is not JSON.
        """
        return tuple(_texts_by_message(self.body))


class Event(msgspec.Struct, frozen=True):
    """What one event of a stream says about one choice. An event that says several things is several of these.

    - ``kind``: what the text is: the answer's ``text``, its ``thinking``, a ``refusal``, or the arguments of a
      ``tool`` call; or the ``usage`` of an event without choices, the end of a choice (``finish``), an ``error``, or
      any ``other`` thing, such as the role.
    - ``choice``: its index.
    - ``data``: the decoded event in OpenAI's form, for reading: the client gets the event that a filter returns. In one
      that a filter makes itself, it may be left out where ``kind`` and ``text`` say it all.
    """

    kind: EventKind
    choice: int = 0
    text: str = ""
    data: dict[str, Any] = {}


Passed = Event | Sequence[Event] | Refuse | None
"""What a filter returns for an event."""
Whole = bytes | dict[str, Any] | Refuse | None
"""What a filter returns for a whole answer."""


class AnswerFilter:
    """Sees one answer on its way to the client, and may change it. Each method is optional, and must return at once,
    but ``whole`` may be a coroutine.

    An answer is OpenAI's, whatever the client speaks. Its head comes first. Then ``event`` gets each event of a stream,
    and ``end`` is called last; any other answer comes whole, to ``whole``. An error ends an answer with ``broken``: it
    may be the whole answer, an event of a stream, or a client that left.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for problem in misspelt(AnswerFilter, cls):
            raise TypeError(f"{cls.__name__}: {problem}")

    def head(self, status: int, headers: Mapping[str, str]) -> Mapping[str, str | None] | None:
        """Look at the status and the headers, by lower-case names.

        Return the headers that change; the others stay. ``None`` as the value of one removes it.
        """
        return None

    def event(self, event: Event) -> Passed:
        """Return what the client gets of a stream's event.

        That is the event as it is, a changed one (``msgspec.structs.replace``), a sequence of events, which may be
        empty, or ``Refuse``, which ends the stream with an error. ``None`` holds the event: it passes before the next
        one that is returned as it is, and what is returned otherwise takes its place too.
        """
        return event

    def whole(self, body: bytes) -> Whole | Awaitable[Whole]:
        """Return the body of a whole answer of status 200 to 299 that the client gets; ``None`` leaves it.

        May be a coroutine, for which the answer is held, as long as ``before`` may take.
        """
        return None

    def silent(self, seconds: float) -> Passed:
        """The stream has had no event for ``seconds``. Return what the client gets now, if anything.

        It is called about ten times in a second, once the stream has begun and while its client reads.
        """
        return None

    def broken(self, error: Mapping[str, Any]) -> None:
        """The answer ended with an error, whose object has at least ``message`` and ``code``."""

    def end(self) -> Passed:
        """The stream ended as it should. Return its last events; ``None`` leaves those that are held."""
        return None


class Interceptor(ABC):  # noqa: B024 - each method is optional
    """Chosen by ``interceptors``, in that order: each sees what the one before has changed.

    An interceptor serves all requests at the same time; what belongs to one of them is kept in its ``AnswerFilter``.
    ``interceptors`` also says how long ``before`` may take, and what follows if the interceptor fails.
    """

    async def before(self, request: InterceptedRequest) -> Refuse | Change | Answer | Join | None:
        """Decide about a request before it is routed. ``None`` lets it go on."""
        return None

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        """Return a new filter for the answer to ``request``, which is as the engine gets it; ``None`` for none."""
        return None


class InterceptorAdapter(Interceptor):
    """Makes interceptors of what plugins register as another kind, and a list of the configuration names.

    It is registered as an interceptor, and used if that list names anything. What it makes sees requests before the
    interceptors of ``interceptors`` do, and answers after them; no request may ``Join`` another one there.
    """

    kind: ClassVar[str]
    """The kind, such as ``guard``."""
    table: ClassVar[str]
    """The list, such as ``guards``, which has the form of ``interceptors``."""

    @abstractmethod
    def adapt(self, plugin: PluginId, made: Any, *, passes: bool) -> Interceptor:
        """Return the interceptor of ``made``, an instance of ``plugin``. ``passes``: if it fails, requests go on."""


def _texts_by_message(body: bytes) -> Iterator[str]:
    try:
        asked = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return
    if not isinstance(asked, dict):
        return
    messages = asked.get("messages")
    if isinstance(messages, list):
        for each in messages:
            yield "\n".join(_texts_of_message(each)) if isinstance(each, dict) else ""
        return
    for name in ("prompt", "input", "query", "documents"):
        yield from _texts(asked.get(name))


def _texts_of_message(message: dict[str, Any]) -> Iterator[str]:
    yield from _texts(message.get("content"))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        yield from _texts(function.get("arguments") if isinstance(function, dict) else None)


def _texts(value: object) -> Iterator[str]:
    """The texts in a content, a prompt or a list of either."""
    left = [value]  # no recursion: a client chooses how deep it is
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += reversed(value)
        elif isinstance(value, dict):
            left += [value.get("content"), value.get("text")]


class ChosenInterceptor(NamedTuple):
    """An interceptor that the configuration names, which has ``timeout`` seconds to decide about a request.

    ``passes``: if it fails, requests go on without it. ``outer``: an ``InterceptorAdapter`` has made it. It sees
    requests before the others do, and answers after them, and no request may ``Join`` another one there.
    """

    interceptor: Any
    plugin: PluginId
    timeout: float
    passes: bool
    outer: bool


def chosen_interceptors(configured: Configured) -> Sequence[ChosenInterceptor]:
    """The interceptors that the configuration names, in their order, for middleware that asks them.

    Raises ``ConfigError``, among others for guards that no enabled plugin asks: they must not fail open. Raises
    ``PluginError``.
    """
    chosen: list[ChosenInterceptor] = []
    for settings, plugin, made in _named(configured, "interceptor", "interceptors"):
        if _adapts(made):
            problem = f"'{plugin.type}' is used with '{made.table}', and sees no request itself"
            raise ConfigError(problem, key="interceptors", remedy="remove it")
        chosen.append(ChosenInterceptor(made, plugin, settings.timeout, settings.on_error == "pass", outer=False))

    def adapt(adapter: InterceptorAdapter) -> None:
        for settings, plugin, made in _named(configured, adapter.kind, adapter.table):
            passes = settings.on_error == "pass"
            adapted = adapter.adapt(plugin, made, passes=passes)
            chosen.append(ChosenInterceptor(adapted, plugin, settings.timeout, passes, outer=True))

    adapters = {type: each for type, each in configured.types("interceptor").items() if _adapts(each)}
    for type in adapters:
        configured.plugin("interceptor", type, "", None, adapt)
    if configured.table("guards") and not any(each.table == "guards" for each in adapters.values()):
        remedy = "enable the plugin 'guards', or remove the key"
        raise ConfigError("no enabled plugin asks guards", key="guards", remedy=remedy)
    return chosen


def _adapts(interceptor: object) -> bool:
    """Whether an interceptor, or a class of them, is an ``InterceptorAdapter``."""
    return all(hasattr(interceptor, name) for name in ("kind", "table", "adapt"))


def _named(configured: Configured, kind: str, table: str) -> Iterator[tuple[InterceptorSettings, PluginId, Any]]:
    """The plugins that a list of the configuration names, with what it says of them."""
    for number, each in enumerate(configured.table(table)):
        settings = InterceptorSettings(type=each) if isinstance(each, str) else each
        yield settings, *configured.plugin(kind, settings.type, f"{table}[{number}]", settings.parameters)
