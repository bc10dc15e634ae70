"""The interceptor ``tool_calls``."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

import msgspec

from enginehouse_interceptors.asked import asked_of
from enginehouse_kit.interceptors import AnswerFilter, Event, InterceptedRequest, Interceptor

_MOST_HELD = 256 * 1024
"""Characters of a call; a longer one passes as text."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


class ToolCalls(Interceptor):
    """Makes calls of tools of the text in which an engine has left them. What it cannot read passes as it came."""

    class Config(msgspec.Struct, frozen=True):
        """``models``: none by default, so that nothing changes; ``*`` and ``?`` match as in a shell."""

        models: Annotated[list[str], msgspec.Meta(description="models whose answers are checked")] = []

    def __init__(self, config: Config) -> None:
        self._models = config.models

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        if not any(fnmatchcase(request.model, each) for each in self._models) or not asked_of(request).get("tools"):
            return None
        return CallFilter() if request.path.endswith("/chat/completions") else None


class CallFilter(AnswerFilter):
    """Holds text only from a marker on, and while its end may be the beginning of one.

    ``_places``: the next index of a call in each choice; the engine may have found some calls itself.
    """

    def __init__(self) -> None:
        self._held: dict[int, str] = {}
        self._places: dict[int, int] = {}
        self._leaked: set[int] = set()
        self._like: dict[str, Any] = {}

    def event(self, event: Event) -> Any:
        self._like = event.data
        if event.kind == "finish":
            rest = [*self._rest(event.choice)]
            return [*rest, _finish(event) if event.choice in self._leaked else event]
        if event.kind == "tool":
            self._places[event.choice] = max(self._places.get(event.choice, 0), _place_behind(event))
            rest = [*self._rest(event.choice)]
            return [*rest, event] if rest else event
        if event.kind != "text":
            return event
        text = self._held.pop(event.choice, "") + event.text
        if text == event.text and first_marker(text) == (len(text), None):
            return event
        return [*self._pieces(event.choice, text, last=False)]

    def end(self) -> Any:
        return [event for choice in list(self._held) for event in self._rest(choice)]

    def whole(self, body: bytes) -> Any:
        try:
            answer = _object(body)
        except (ValueError, RecursionError):
            return None
        choices = answer.get("choices")
        changed = [_changed(each) for each in choices] if isinstance(choices, list) else choices
        return None if changed == choices else {**answer, "choices": changed}

    def _rest(self, choice: int) -> Iterator[Event]:
        text = self._held.pop(choice, "")
        return self._pieces(choice, text, last=True) if text else iter(())

    def _pieces(self, choice: int, text: str, *, last: bool) -> Iterator[Event]:
        for piece in split(text, last=last):
            if isinstance(piece, LeakedCall):
                index = self._places.get(choice, 0)
                self._places[choice] = index + 1
                self._leaked.add(choice)
                delta = {"tool_calls": [{"index": index, **_as_call(piece)}]}
                choices = [{"index": choice, "delta": delta, "finish_reason": None}]
                data = {**self._like, "usage": None, "choices": choices}
                yield Event("tool", choice, piece.arguments, data)
            elif piece.held:
                self._held[choice] = piece.text
            else:
                yield Event("text", choice, piece.text)


class Piece(msgspec.Struct, frozen=True):
    """A text that passes, or that is ``held`` until more has come."""

    text: str
    held: bool = False


def split(text: str, *, last: bool) -> Iterator[Piece | LeakedCall]:
    """The texts and the calls of ``text``; with the ``last``, nothing is held."""
    while text:
        at, marker = first_marker(text)
        if at:
            yield Piece(text[:at])
        text = text[at:]
        if not text:
            return
        end = _end(text, marker, last=last)
        if end is None:
            yield Piece(text, held=not last and len(text) <= _MOST_HELD)
            return
        inner, behind = end
        yield from read_calls(inner) or (Piece(text[: len(text) - len(behind)]),)
        text = behind


def _end(text: str, marker: Marker | None, *, last: bool) -> tuple[str, str] | None:
    """What is between a ``marker``, with which ``text`` begins, and its end, and what follows; ``None`` without one."""
    if marker is None:
        return None
    inner, end, behind = text[len(marker.begin) :].partition(marker.end) if marker.end else (text, "", "")
    if end:
        return inner, behind
    return (text[len(marker.begin) :], "") if last else None


def _changed(choice: Any) -> Any:
    """A choice of a whole answer with its calls where they belong."""
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, str) or message.get("tool_calls"):
        return choice
    pieces = [*split(content, last=True)]
    calls = [_as_call(each) for each in pieces if isinstance(each, LeakedCall)]
    if not calls:
        return choice
    text = "".join(each.text for each in pieces if isinstance(each, Piece)).strip()
    return {
        **choice,
        "message": {**message, "content": text or None, "tool_calls": calls},
        "finish_reason": "tool_calls",
    }


def _as_call(call: LeakedCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


def _place_behind(event: Event) -> int:
    """The index behind those of the engine's calls in an event."""
    calls = [call for each in event.data["choices"] for call in each["delta"].get("tool_calls") or ()]
    places = [call.get("index") for call in calls if isinstance(call, dict)]
    return max((place + 1 for place in places if isinstance(place, int)), default=0)


def _finish(event: Event) -> Event:
    """The end of a choice that has called tools."""
    choices = [{**each, "finish_reason": "tool_calls"} for each in event.data["choices"]]
    return msgspec.structs.replace(event, data={**event.data, "choices": choices})


class Marker(NamedTuple):
    """A call, or a list of calls, as JSON from ``begin`` to ``end``, or to the end of the text if that is empty."""

    begin: str
    end: str


MARKERS = (
    Marker("<tool_call>", "</tool_call>"),  # Hermes, Qwen
    Marker("[TOOL_CALLS]", ""),  # Mistral
    Marker("<|python_tag|>", ""),  # Llama 3
)


class LeakedCall(NamedTuple):
    """A call of a tool; ``arguments`` are JSON."""

    name: str
    arguments: str


def read_calls(text: str) -> list[LeakedCall]:
    """The calls in the text between two markers; none if it cannot be read as such."""
    try:
        found = msgspec.json.decode(text.strip().removesuffix("<|eom_id|>").removesuffix("<|eot_id|>"))
    except (ValueError, RecursionError):
        return []
    calls = [_call(each) for each in (found if isinstance(found, list) else [found])]
    return [each for each in calls if each is not None] if all(calls) else []


def _call(value: Any) -> LeakedCall | None:
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return LeakedCall(name, arguments)
    return LeakedCall(name, msgspec.json.encode(arguments).decode()) if isinstance(arguments, dict) else None


def first_marker(text: str) -> tuple[int, Marker | None]:
    """Where the first marker begins in ``text``, and which it is.

    Without one, where the end of the text may be the beginning of one: its length if it cannot.
    """
    found = [(at, each) for each in MARKERS if (at := text.find(each.begin)) >= 0]
    if found:
        return min(found)
    longest = max(len(each.begin) for each in MARKERS)
    for at in range(max(0, len(text) - longest), len(text)):
        if any(each.begin.startswith(text[at:]) for each in MARKERS):
            return at, None
    return len(text), None
