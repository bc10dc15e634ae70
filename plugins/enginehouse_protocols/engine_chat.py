"""Reads the chats and completions of engines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from enginehouse.errors import UpstreamError
from enginehouse_protocols.chats import new_id
from enginehouse_protocols.fields import json_text, of_engine
from enginehouse_protocols.said import (
    Call,
    CallBegins,
    CallGoesOn,
    Counted,
    Finish,
    Refusal,
    Said,
    Text,
    Thinking,
    Usage,
)

_log = logging.getLogger(__name__)

_FINISHES: Final = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}
"""What engines call their reasons; all others are ``stop``."""
_MOST_CALLS: Final = 1024
"""Of one answer."""


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _Call(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_Call | None] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    index: Any = None
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    matched_stop: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    timings: Any = None


class EngineChat:
    """Reads one answer, whole or in events.

    The dialects have one answer to a request: of several choices the first one that the engine speaks of counts.
    """

    def __init__(self) -> None:
        self._choice: Any = None
        self._chosen = self._usage_is_told = self._has_spoken = False
        self._calls = Calls(map(new_id, repeat("call_")))

    def read(self, answer: Mapping[str, Any]) -> list[Said]:
        """What an event, or a whole answer, says. Raises ``UpstreamError`` for what is neither."""
        if "choices" not in answer and "usage" not in answer and "timings" not in answer:
            _log.debug("An event of an engine is left out: it has no choices: %.200s", answer)
            return []
        event = of_engine(answer, _Answer)
        said: list[Said] = []
        for choice in event.choices or ():
            if choice is not None:
                self._read_choice(choice, said)
        if event.usage or event.timings:
            self._count(event, said)
        return said

    def read_whole(self, answer: Mapping[str, Any]) -> list[Said]:
        """What a whole answer says. Raises ``UpstreamError`` for one without a choice."""
        said = self.read(answer)
        self.check()
        return said

    def check(self) -> None:
        """Raises ``UpstreamError`` if the engine has said nothing at all."""
        if not self._has_spoken:
            raise UpstreamError("The engine's answer has neither choices nor a usage")

    def _read_choice(self, choice: _Choice, said: list[Said]) -> None:
        index = choice.index or 0
        if not self._chosen:
            self._chosen, self._choice = True, index
        elif index != self._choice:
            _log.debug("Choice %s of an engine is left out", index)
            return
        self._has_spoken = True
        message = choice.message if choice.delta is None else choice.delta  # a stream may repeat all of it beside
        if message is not None:
            self._read_message(message, said)
        if choice.text:
            said.append(Text(choice.text))
        if choice.finish_reason:
            stops = choice.stop_reason, choice.matched_stop  # vLLM's and SGLang's; a number is that of a token
            stopped_at = next((each for each in stops if isinstance(each, str)), "")
            said.append(Finish(_FINISHES.get(choice.finish_reason, "stop"), stopped_at))

    def _read_message(self, message: _Message, said: list[Said]) -> None:
        content = message.content
        thought = message.reasoning_content or message.reasoning  # some engines say both, with the same text
        if thought:
            said.extend(_parts(thought, Thinking))
        if content:
            if isinstance(content, str):
                said.append(Text(content))
            else:
                said.extend(_parts(content, Text))
        if message.refusal and isinstance(message.refusal, str):
            said.append(Refusal(message.refusal))
        for place, call in enumerate(message.tool_calls or ()):
            if call is not None:
                self._calls.take(_piece(call.function, call.id, call.index, place), said)
        if message.function_call is not None:  # before there were tools, an answer called one function at most
            self._calls.take(_piece(message.function_call, None, None, 0), said)

    def _count(self, event: _Answer, said: list[Said]) -> None:
        usage, timings = event.usage, event.timings
        if usage and isinstance(usage, dict):
            self._usage_is_told = self._has_spoken = True
            said.append(Counted(read_usage(usage)))
        elif timings and isinstance(timings, dict) and not self._usage_is_told:  # llama-server's, without being asked
            cached = _count(timings, "cache_n")
            prompt, output = _count(timings, "prompt_n") + cached, _count(timings, "predicted_n")
            said.append(Counted(Usage(prompt, cached, output)))


def read_usage(usage: Any) -> Usage:
    """The token counts, as far as an answer has them."""
    if not isinstance(usage, dict):
        return Usage()
    prompt, output = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        _count(usage, "prompt_tokens"),
        _count(prompt, "cached_tokens"),
        _count(usage, "completion_tokens"),
        _count(output, "reasoning_tokens") or _count(usage, "reasoning_tokens"),  # the latter is SGLang's
    )


def _parts(content: Any, kind: type[Text] | type[Thinking]) -> Iterator[Said]:
    """What a text says, or a list of typed parts. Raises ``UpstreamError`` for anything else."""
    if isinstance(content, str):
        if content:
            yield kind(content)
    elif isinstance(content, list):
        for part in content:
            yield from _part(part, kind)
    else:
        raise UpstreamError(f"The engine's answer cannot be read: its content is {type(content).__name__}")


def _part(part: Any, kind: type[Text] | type[Thinking]) -> Iterator[Said]:
    if isinstance(part, str):
        if part:
            yield kind(part)
        return
    if not isinstance(part, dict):
        if part is not None:
            raise UpstreamError("The engine's answer cannot be read: a part of its content is not an object")
        return
    type_ = part.get("type")
    if type_ in ("thinking", "reasoning"):
        yield from _parts(part.get(type_) or part.get("text") or "", Thinking)
    elif type_ == "refusal":
        if isinstance(refusal := part.get("refusal"), str) and refusal:
            yield Refusal(refusal)
    elif isinstance(text := part.get("text"), str):
        if text:
            yield kind(text)
    else:
        _log.debug("A part of type '%s' of an engine's answer is left out", type_)


def _piece(function: _Function | None, id: Any, index: Any, place: int) -> CallPiece:
    """A piece of a call; its ``place`` in the list tells calls apart that have neither id nor index."""
    if type(index) is not int:
        index = -1 - place if place else None
    name: Any = ""
    arguments: Any = ""
    if function is not None:
        name, arguments = function.name or "", function.arguments or ""
    if not isinstance(arguments, str):
        arguments = json_text(arguments)
    if not isinstance(id, str):
        id = "" if id is None else json_text(id)
    return CallPiece(index, id, name if isinstance(name, str) else "", arguments)


def _count(counts: Any, name: str) -> int:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if type(value) is int and value >= 0 else 0


class CallPiece(NamedTuple):
    """A piece of a call as an engine sends it. Any part may be missing."""

    place: int | None
    id: str
    name: str
    arguments: str


class Calls:
    """The calls of one answer. ``make_id`` names those that have no id.

    A piece belongs to the call with its id; without one, to the call at its index; without both, to the latest. Some
    engines give every call the same index, repeat names in every piece, or send a call once more when it is whole.
    """

    def __init__(self, make_id: Iterator[str]) -> None:
        self._make_id = make_id
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._latest: Call | None = None
        self._begun: set[Call] = set()
        self._named_here: set[Call] = set()

    def take(self, piece: CallPiece, said: list[Said]) -> None:
        """Add what a piece says. A call begins once its name is known. Raises ``UpstreamError`` for too many calls."""
        call, arguments = self._owner(piece), piece.arguments
        if call in self._begun:
            if arguments and not call.is_whole:
                call.add(arguments)
                said.append(CallGoesOn(call, arguments))
            return
        call.name = call.name or piece.name
        if arguments and not call.is_whole:
            call.add(arguments)
        if call.name:
            self._begin(call, said)

    def _begin(self, call: Call, said: list[Said]) -> None:
        self._begun.add(call)
        if len(self._begun) > _MOST_CALLS:
            raise UpstreamError(f"The engine's answer cannot be read: it calls more than {_MOST_CALLS} tools")
        if not call.id:
            call.id = next(self._make_id)
            self._named_here.add(call)
        said.append(CallBegins(call))
        if text := call.arguments:
            said.append(CallGoesOn(call, text))

    def _owner(self, piece: CallPiece) -> Call:
        """The call that a piece belongs to, which may be new."""
        call = self._by_its_id(piece) if piece.id else self._without_id(piece)
        if piece.id:
            self._by_id.setdefault(piece.id, call)
        if piece.place is not None:
            self._by_index[piece.place] = call
        self._latest = call
        return call

    def _by_its_id(self, piece: CallPiece) -> Call:
        id, index = piece.id, piece.place
        there = None if index is None else self._by_index.get(index)
        known = self._by_id.get(id)
        if known is None:
            if there is None or (there.id and there not in self._named_here):
                return Call(id, piece.name)  # perhaps another one at the same index
            there.id = there.id or id  # it comes later than the call
            return there
        if index is None or index < 0 or there is known or not piece.name:
            return known
        if (piece.name, piece.arguments.strip()) == (known.name, known.arguments.strip()):
            return known
        return there or Call("", piece.name)  # an engine that gives all calls the same id

    def _without_id(self, piece: CallPiece) -> Call:
        known = self._latest if piece.place is None else self._by_index.get(piece.place)
        return Call("", piece.name) if known is None or _is_another(known, piece) else known


def _is_another(known: Call, piece: CallPiece) -> bool:
    """Whether a piece begins another call than the one ``known`` by its id or its place."""
    if not piece.name or not known.name:
        return False
    if piece.name != known.name:
        return True
    return known.is_whole and piece.arguments.strip() not in ("", known.arguments.strip())
