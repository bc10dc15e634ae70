"""Makes answers of engines, in all the forms in which engines give them, and says what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

_TEXTS = ("a", " b", "\n", "é", "日本", "🚂", '"', "\\", "{", "}", "[1]", "data: x", "\n\n", "</think>", "\u2028", "0")
_NAMES = ("add", "now", "apply_patch", "mcp__files__read", "x")
_FINISHES = ("stop", "length", "tool_calls", "content_filter", "eos_token", "function_call")
Call = tuple[str, dict[str, Any]]
Event = dict[str, Any] | str | bytes
"""An event, the text of a comment, or the lines of what is neither."""


@dataclass
class Meaning:
    """What an answer says: to whoever reads it, whatever the form."""

    thinking: str = ""
    text: str = ""
    refusal: str = ""
    spoken: str = ""
    """Text and refusals, in their order."""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""
    prompt: int = 0
    cached: int = 0
    output: int = 0
    breaks: bool = False
    """An event that nobody can read, or an error of the engine's, ends it."""
    error: str = ""
    """The engine's words of its error."""
    status: int = 0
    """The status of an error that blames the request; 0 if it does not, or if something is said before."""


@dataclass
class Piece:
    """A piece of what is said: its ``kind`` and, for a call, which one and whether it is the first of it."""

    kind: str
    text: str
    call: int = 0
    first: bool = False


class AnswerMaker:
    """Makes one answer from a seed: its pieces, their meaning, and the events of an engine with its own habits."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.meaning = Meaning()
        self._style = rng.choice(_STYLES)
        self._ids = [f"call_{rng.randrange(10**6)}_{number}" for number in range(4)]
        self._thinks_as = rng.choice(("reasoning_content", "reasoning", "both", "parts"))
        self._in_parts = rng.random() < 0.15
        self._pieces = self._made()

    def _made(self) -> list[Piece]:
        """The pieces in the order in which the engine says them."""
        rng, meaning, style = self.rng, self.meaning, self._style
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            call = (rng.choice(_NAMES), _arguments(rng))
            if call not in meaning.calls:
                meaning.calls.append(call)
        if style.only_one:
            del meaning.calls[1:]
        spoken: list[Piece] = []
        for _ in range(rng.randrange(5)):
            kind = rng.choice(("text", "text", "text", "thinking", "refusal"))
            spoken += [Piece(kind, text) for text in _cut(rng, _text(rng), 4)]
        calls = [
            [Piece("call", text, number, place == 0) for place, text in enumerate(style.cut(rng, arguments))]
            for number, (_, arguments) in enumerate(meaning.calls)
        ]
        together = (
            _mixed(rng, calls) if style.interleaves and rng.random() < 0.5 else [p for each in calls for p in each]
        )
        if not style.interleaves or rng.random() < 0.6:
            pieces = [*spoken, *together]
        else:
            pieces = _mixed(rng, [spoken, together])
        for piece in pieces:
            if piece.kind == "thinking":
                meaning.thinking += piece.text
            elif piece.kind != "call":
                meaning.spoken += piece.text
                meaning.text += piece.text if piece.kind == "text" else ""
                meaning.refusal += piece.text if piece.kind == "refusal" else ""
        return pieces

    def events(self) -> list[Event]:
        """The stream."""
        rng, meaning = self.rng, self.meaning
        events: list[Event] = []
        if rng.random() < 0.7:
            events.append(_choice({"role": "assistant", "content": rng.choice((None, ""))}))
        events += [_choice(self._nulls(self._said(piece))) for piece in self._pieces]
        if self._style.repeats and meaning.calls and rng.random() < 0.3:
            calls = [self._style.whole(self, number) for number in range(len(meaning.calls))]
            events.append(_choice({"tool_calls": calls}))
        meaning.finish = rng.choice(_FINISHES)
        last = events[-1] if events else None
        if isinstance(last, dict) and rng.random() < 0.4:
            last["choices"][0]["finish_reason"] = meaning.finish
        else:
            events.append(_choice(rng.choice(({}, None, {"content": ""})), meaning.finish))
        self._count(events)
        self._disturb(events)
        return events

    def whole(self) -> dict[str, Any]:
        """The same, as a whole answer."""
        rng, meaning = self.rng, self.meaning
        message: dict[str, Any] = {"role": "assistant", "content": meaning.text or rng.choice((None, ""))}
        if meaning.thinking:
            message["reasoning"] = meaning.thinking
        if meaning.refusal:
            message["refusal"] = meaning.refusal
        meaning.spoken = meaning.text + meaning.refusal
        if meaning.calls:
            message["tool_calls"] = [self._style.whole(self, number) for number in range(len(meaning.calls))]
        if self._style.legacy and meaning.calls:
            message["function_call"] = message.pop("tool_calls")[0]["function"]
        meaning.finish = rng.choice(_FINISHES)
        answer: dict[str, Any] = {"choices": [{"index": 0, "message": self._nulls(message)}]}
        answer["choices"][0]["finish_reason"] = meaning.finish
        if rng.random() < 0.2:
            answer["choices"].append({"index": 1, "message": {"content": "other"}, "finish_reason": "stop"})
        if rng.random() < 0.8:
            answer["usage"] = self._usage()
        return answer

    def _said(self, piece: Piece) -> dict[str, Any]:
        if piece.kind == "call":
            return self._style.piece(self, piece)
        if piece.kind == "refusal":
            return {"refusal": piece.text}
        if piece.kind == "text":
            return {"content": [{"type": "text", "text": piece.text}] if self._in_parts else piece.text}
        if self._thinks_as == "parts":
            return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece.text}]}]}
        names = ("reasoning", "reasoning_content") if self._thinks_as == "both" else (self._thinks_as,)
        return dict.fromkeys(names, piece.text)

    def _nulls(self, said: dict[str, Any]) -> dict[str, Any]:
        rng = self.rng
        for name in ("content", "refusal", "tool_calls", "function_call", "audio", "reasoning_content", "role"):
            if rng.random() < 0.1:
                said.setdefault(name, None)
        return said

    def _usage(self) -> dict[str, Any]:
        rng, meaning = self.rng, self.meaning
        meaning.prompt, meaning.output = rng.randrange(1, 1000), rng.randrange(1, 1000)
        meaning.cached = rng.randrange(meaning.prompt)
        return {
            "prompt_tokens": meaning.prompt,
            "completion_tokens": meaning.output,
            "prompt_tokens_details": {"cached_tokens": meaning.cached},
            "completion_tokens_details": None,
        }

    def _count(self, events: list[Any]) -> None:
        """Add the usage: nowhere, in an event of its own, in the last one, in all of them, or as llama-server does."""
        how = self.rng.choice(("none", "own", "last", "all", "timings"))
        if how == "own":
            events.append({"choices": self.rng.choice(([], None)), "usage": self._usage()})
        elif how == "last":
            events[-1]["usage"] = self._usage()
        elif how == "all":
            for event in events:
                event["usage"] = self._usage()
        elif how == "timings":
            usage = self._usage()
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            counts = {"prompt_n": usage["prompt_tokens"] - cached, "cache_n": cached}
            events[-1]["timings"] = counts | {"predicted_n": usage["completion_tokens"]}

    def _disturb(self, events: list[Any]) -> None:
        """Add what says nothing, another choice, or an event that nobody can read."""
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 3))):
            events.insert(rng.randrange(1, len(events) + 1), rng.choice(_FOREIGN)())
        if rng.random() < 0.08:
            at = rng.randrange(1, len(events) + 1)
            events[at:] = [rng.choice(_UNREADABLE), *events[at:]]
            self.meaning.breaks = True
        elif rng.random() < 0.1:
            self._fail(events)

    def _fail(self, events: list[Event]) -> None:
        """Add an error in the form of some engine, behind which an engine may go on, or end."""
        rng, meaning = self.rng, self.meaning
        at = rng.choice((0, rng.randrange(len(events) + 1)))
        meaning.breaks, meaning.error = True, rng.choice(("No such thing", 'it said "no"', "é\n{}"))
        status = rng.choice((400, 422, 429, 500, 503))
        event, tells_status = rng.choice(_ERRORS)(meaning.error, status)
        if tells_status and status < 500 and all(isinstance(each, str) for each in events[:at]):
            meaning.status = status
        events[at:] = [event, *(events[at:] if rng.random() < 0.5 else ())]

    # --- for the styles

    def name(self, call: int) -> str:
        return self.meaning.calls[call][0]

    def id(self, call: int) -> str:
        return self._ids[call]


@dataclass(frozen=True)
class Style:
    """How an engine tells calls. ``piece`` makes the delta of a piece, from the maker and the piece."""

    make: Callable[[AnswerMaker, Piece], dict[str, Any]]
    cuts: bool = True
    interleaves: bool = True
    repeats: bool = False
    only_one: bool = False
    legacy: bool = False
    as_object: bool = False
    has_ids: bool = True

    def cut(self, rng: Random, arguments: dict[str, Any]) -> list[str]:
        told = arguments or self.make is _bare  # which call an empty piece without a number belongs to is unknown
        text = "" if not told and rng.random() < 0.5 else json.dumps(arguments, ensure_ascii=rng.random() < 0.5)
        if self.make in (_named_late, _with_late_ids):
            return ["", *_cut(rng, text, 5)]
        return _cut(rng, text, 5) if self.cuts else [text]

    def piece(self, maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
        made = self.make(maker, piece)
        return {"function_call": made["function"]} if self.legacy else {"tool_calls": [made]}

    def whole(self, maker: AnswerMaker, call: int) -> dict[str, Any]:
        """The call as it is sent once more, or in a whole answer."""
        name, arguments = maker.meaning.calls[call]
        said: Any = arguments if self.as_object else json.dumps(arguments)
        made: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": said}}
        return {"id": maker.id(call), **made} if self.has_ids else made


def _usual(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    if not piece.first:
        return {"index": piece.call, "function": {"arguments": piece.text}}
    function = {"name": maker.name(piece.call), "arguments": piece.text}
    return {"index": piece.call, "id": maker.id(piece.call), "type": "function", "function": function}


def _repeating(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    function = {"name": maker.name(piece.call), "arguments": piece.text}
    return {"index": piece.call, "id": maker.id(piece.call), "function": function}


def _without_ids(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {**_usual(maker, piece), "id": None}


def _with_late_ids(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    made = _usual(maker, piece)
    return {**made, "id": None if piece.first else maker.id(piece.call)}


def _with_one_id(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {**_repeating(maker, piece), "id": "call"}


def _without_index(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {name: value for name, value in _usual(maker, piece).items() if name != "index"}


def _by_id(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {"id": maker.id(piece.call), **_without_index(maker, piece)}


def _all_first(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {**_repeating(maker, piece), "index": 0}


def _bare(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    return {"function": {"name": maker.name(piece.call), "arguments": piece.text}}


def _objects(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    arguments = json.loads(piece.text or "{}")
    return {**_repeating(maker, piece), "function": {"name": maker.name(piece.call), "arguments": arguments}}


def _named_late(maker: AnswerMaker, piece: Piece) -> dict[str, Any]:
    made = _usual(maker, piece)
    if piece.first:
        del made["function"]["name"]
    else:
        made["function"]["name"] = maker.name(piece.call)
    return made


_STYLES = (
    Style(_usual, repeats=True),
    Style(_usual),
    Style(_repeating, repeats=True),
    Style(_without_ids, has_ids=False),
    Style(_without_index, interleaves=False),
    Style(_with_late_ids),
    Style(_with_one_id, cuts=False, has_ids=False),
    Style(_named_late),
    Style(_by_id),
    Style(_all_first, cuts=False),
    Style(_bare, cuts=False, interleaves=False, has_ids=False),
    Style(_objects, cuts=False, as_object=True),
    Style(_usual, only_one=True, legacy=True, has_ids=False),
)
_FOREIGN: tuple[Callable[[], dict[str, Any] | str], ...] = (
    lambda: "keep-alive",
    lambda: {"choices": []},
    lambda: {"choices": None, "usage": None},
    lambda: {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    lambda: {"object": "chat.completion.ping"},
    lambda: {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]},
    lambda: {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
    lambda: {"choices": [None]},
    lambda: {"choices": [{"index": 0, "delta": {"content": [{"type": "image_url", "image_url": {}}]}}]},
)


def _data(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode()


_TGI = {422: "validation", 429: "overloaded"}
_ERRORS: tuple[Callable[[str, int], tuple[Event, bool]], ...] = (
    # llama.cpp, and as it was before
    lambda words, code: ({"error": {"code": code, "message": words, "type": "server_error"}}, True),
    lambda words, code: (b"error: " + json.dumps({"code": code, "message": words, "type": "x"}).encode(), True),
    # vLLM, and as it was before; TensorRT-LLM
    lambda words, code: ({"error": {"message": words, "type": "BadRequestError", "param": None, "code": code}}, True),
    lambda words, code: ({"object": "error", "message": words, "type": "x", "param": None, "code": code}, True),
    # SGLang
    lambda words, code: ({"error": {"object": "error", "message": words, "type": "x", "code": code}}, True),
    # TGI, and as it was before
    lambda words, code: ({"error": {"message": words, "http_status_code": code}}, True),
    lambda words, code: ({"error": words, "error_type": _TGI.get(code, "generation")}, code in _TGI),
    # Ollama, as OpenAI and in a bare line
    lambda words, code: ({"error": {"message": words, "type": "api_error", "param": None, "code": None}}, False),
    lambda words, code: (json.dumps({"error": words}).encode(), False),
    # LM Studio
    lambda words, code: (b"event: error\n" + _data({"error": {"message": words}, "message": words}), False),
    # LiteLLM
    lambda words, code: ({"error": {"message": words, "type": "None", "param": "None", "code": str(code)}}, True),
    # FastAPI's servers, and OpenAI
    lambda words, code: ({"detail": words}, False),
    lambda words, code: (b"event: error\n" + _data({"error": {"message": words, "type": "server_error"}}), False),
)
"""Makes an error with these words and this status, if its form tells one; says whether it does."""
_UNREADABLE: tuple[dict[str, Any], ...] = (
    {"choices": [{"index": 0, "delta": {"content": 5}}]},
    {"choices": [{"index": 0, "delta": "x"}]},
    {"choices": "x"},
    {"choices": [{"index": 0, "delta": {"tool_calls": {"index": 0}}}]},
)


def _choice(delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }


def _arguments(rng: Random) -> dict[str, Any]:
    return {f"k{number}": _value(rng, 2) for number in range(rng.randrange(3))}


def _value(rng: Random, depth: int) -> Any:
    kinds: list[Callable[[], Any]] = [lambda: _text(rng), lambda: rng.randrange(100), lambda: None, lambda: True]
    if depth:
        kinds.append(lambda: [_value(rng, depth - 1) for _ in range(rng.randrange(3))])
        kinds.append(lambda: {_text(rng): _value(rng, depth - 1) for _ in range(rng.randrange(3))})
    return rng.choice(kinds)()


def _text(rng: Random) -> str:
    return "".join(rng.choice(_TEXTS) for _ in range(rng.randrange(1, 8)))


def _cut(rng: Random, text: str, most: int) -> list[str]:
    """``text`` in up to ``most`` pieces, some of which may be empty."""
    places = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(most)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def _mixed(rng: Random, lists: list[list[Piece]]) -> list[Piece]:
    """All pieces, those of each list in their order."""
    left = [iter(each) for each in lists]
    return list(_drawn(rng, [(next(each, None), each) for each in left]))


def _drawn(rng: Random, heads: list[tuple[Piece | None, Iterator[Piece]]]) -> Iterator[Piece]:
    heads = [head for head in heads if head[0] is not None]
    while heads:
        at = rng.randrange(len(heads))
        piece, rest = heads[at]
        assert piece is not None
        yield piece
        following = next(rest, None)
        heads[at : at + 1] = [] if following is None else [(following, rest)]
