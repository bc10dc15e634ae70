"""A chat, a prompt or texts to embed of Ollama's, as OpenAI's requests."""

from __future__ import annotations

import math
import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from enginehouse import InvalidRequest
from enginehouse_kit.protocols import Translation
from enginehouse_protocols.chats import (
    Effort,
    effort_fields,
    function_tool,
    image_part,
    joined,
    switch_fields,
    text_part,
    thoughts,
    tool_call,
)
from enginehouse_protocols.engine_chat import read_usage
from enginehouse_protocols.fields import ItemCount, data_url, json_text, of_engine, put, raw_text
from enginehouse_protocols.ollama.answer import ChatAnswer, GenerateAnswer

COMPLETIONS = "/v1/completions"
_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""Options that have a name in OpenAI's requests, or in those of the engines."""
_PENALTY: Final = "repeat_penalty"
"""The option that llama.cpp knows by this name alone, and others by theirs."""
_IMAGES = {b"/9j/": "jpeg", b"iVBOR": "png", b"R0lGO": "gif", b"UklGR": "webp"}
"""The beginnings of images in base64."""
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
EMBEDDINGS = "/v1/embeddings"


class Function(msgspec.Struct, frozen=True):
    """A tool, or a call of it."""

    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    arguments: Any = None


class Tool(msgspec.Struct):
    """What holds a function."""

    id: str | None = None
    function: Function = Function()


class Turn(msgspec.Struct):
    """A message of the conversation."""

    role: str
    content: str | None = ""
    thinking: str | None = ""
    images: list[msgspec.Raw] | None = None
    tool_calls: list[Tool] | None = None
    tool_name: str | None = ""
    tool_call_id: str | None = ""


class _Body(msgspec.Struct, kw_only=True):
    model: str
    stream: bool | None = True
    format: str | dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    think: bool | Effort | None = None
    keep_alive: float | str | None = None


class ChatBody(_Body, kw_only=True):
    """A request for ``/api/chat``."""

    messages: list[Turn] | None = None
    tools: list[Tool] | None = None


class GenerateBody(_Body, kw_only=True):
    """A request for ``/api/generate``."""

    prompt: str | None = ""
    suffix: str | None = None
    system: str | None = ""
    images: list[msgspec.Raw] | None = None
    raw: bool | None = False


def chat(body: ChatBody, model: str) -> Translation:
    """The chat. One without messages loads the model."""
    keep_alive = seconds(body.keep_alive)
    if not body.messages:
        return ChatAnswer(body.model, _loading(model), keep_alive, loads=True)
    within = sum(len(turn.images or ()) + len(turn.tool_calls or ()) for turn in body.messages)
    ItemCount().add(len(body.messages) + within + len(body.tools or ()))
    fields = _fields(body, model) | {"messages": list(_messages(body.messages))}
    if body.tools:
        fields["tools"] = [_tool(tool) for tool in body.tools]
    return ChatAnswer(body.model, fields, keep_alive)


def generate(body: GenerateBody, model: str) -> Translation:
    """The prompt, through the model's template as Ollama does, or raw. An empty one loads the model."""
    keep_alive = seconds(body.keep_alive)
    if not body.prompt and not body.images:
        return GenerateAnswer(body.model, _loading(model), keep_alive, loads=True)
    ItemCount().add(len(body.images or ()))
    fields = _fields(body, model)
    if body.raw or body.suffix:  # Ollama's own client sends an empty one with every prompt
        put(fields, prompt=body.prompt or "", suffix=body.suffix or None)
        return GenerateAnswer(body.model, fields, keep_alive, path=COMPLETIONS)
    turns = [Turn("system", body.system)] if body.system else []
    fields["messages"] = list(_messages([*turns, Turn("user", body.prompt, images=body.images)]))
    return GenerateAnswer(body.model, fields, keep_alive)


def _loading(model: str) -> dict[str, Any]:
    """A request that only has the model loaded: for one token."""
    greeting = [{"role": "user", "content": " "}]
    return {"model": model, "messages": greeting, "max_tokens": 1, "stream": False}


def _fields(body: _Body, model: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": model, "stream": body.stream is not False}
    for name, value in (body.options or {}).items():
        endless = name == "num_predict" and isinstance(value, int) and value <= 0  # as many as fit
        if name in _OPTIONS and value is not None and not endless:
            fields[_OPTIONS[name]] = value
            if name == _PENALTY:
                fields[name] = value
    if body.format == "json":
        fields["response_format"] = {"type": "json_object"}
    elif isinstance(body.format, dict):
        schema = {"name": "answer", "schema": body.format, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(body.think, str):
        fields |= effort_fields(body.think)
    elif body.think is not None:
        fields |= switch_fields(on=body.think)
    return fields


def _messages(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The messages. Ollama's calls need no ids: ``_OpenCalls`` says which one a tool's message answers."""
    open_calls = _OpenCalls()
    for number, turn in enumerate(_joined_turns(turns)):
        message: dict[str, Any] = {"role": turn.role, "content": turn.content or ""}
        if turn.images:
            parts = [text_part(turn.content)] if turn.content else []
            message["content"] = joined([*parts, *(image_part(_address(image)) for image in turn.images)])
        if turn.thinking:
            message |= thoughts(turn.thinking)
        if turn.tool_calls:
            calls = [_call(call, f"call_{number}_{place}") for place, call in enumerate(turn.tool_calls)]
            message["tool_calls"] = calls
            open_calls.add(calls)
        if turn.role == "tool":
            message["tool_call_id"] = open_calls.answered_by(turn) or f"call_{number}_0"
        elif turn.role == "user":  # what has no answer yet gets none
            open_calls = _OpenCalls()
        yield message


def _joined_turns(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns, of which the user's and the system's in a row are one, as for Ollama: many templates take no two."""
    for role, group in groupby(turns, key=lambda turn: turn.role):
        first, *others = group
        if not others or role not in ("system", "user"):
            yield from (first, *others)
        else:
            same = first, *others
            content = "\n\n".join(turn.content for turn in same if turn.content)
            yield Turn(role, content, images=[image for turn in same for image in turn.images or ()])


class _OpenCalls:
    """The calls of tools that have no answer yet."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()
        self._by_name: dict[str, deque[str]] = {}

    def add(self, calls: Sequence[Mapping[str, Any]]) -> None:
        for call in calls:
            id, name = call["id"], call["function"]["name"]
            self._names[id] = name
            self._by_name.setdefault(name, deque()).append(id)

    def answered_by(self, turn: Turn) -> str:
        """The id of the call that a tool's message answers, which is open no more. Empty if there is none.

        It is the one that the message names, or else the earliest of the tool that it names, or of all.
        """
        if id := turn.tool_call_id:
            self._names.pop(id, None)
            return id
        same = self._by_name.get(turn.tool_name or "")
        while same:
            if self._names.pop(id := same.popleft(), None) is not None:
                return id
        return self._names.popitem(last=False)[0] if self._names else ""


def _call(call: Tool, id: str) -> dict[str, Any]:
    return tool_call(call.id or id, call.function.name or "", json_text(call.function.arguments or {}))


def _tool(tool: Tool) -> dict[str, Any]:
    return function_tool(tool.function.name or "", tool.function.description, tool.function.parameters)


def _address(image: msgspec.Raw) -> msgspec.Raw:
    start = bytes(raw_text(image, "images")[:5])
    if start == b"data:":
        return image
    kind = next((kind for begin, kind in _IMAGES.items() if start.startswith(begin)), "png")
    return data_url(f"image/{kind}", image, "images")


def seconds(keep_alive: float | str | None) -> float | None:
    """``keep_alive`` in seconds: a number of them, or a text of Go's such as ``1h30m``. Below 0, it is without end.

    Raises ``InvalidRequest`` for any other text.
    """
    if keep_alive is None:
        return None
    value = keep_alive if isinstance(keep_alive, (int, float)) else _read(keep_alive)
    return math.inf if value < 0 else float(value)


def _read(text: str) -> float:
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text)
    parts = _PART.findall(rest)
    if "".join(number + unit for number, unit in parts) == rest and parts:
        return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(
            f"keep_alive: '{text}' is not a duration: write '5m', '0' or '-1'", param="keep_alive"
        ) from None


class EmbedBody(msgspec.Struct):
    """A request for ``/api/embed``."""

    model: str
    input: str | list[str]
    dimensions: int | None = None


class EmbeddingsBody(msgspec.Struct):
    """A request for ``/api/embeddings``, the older of the two: one text."""

    model: str
    prompt: str


class _Vector(msgspec.Struct):
    embedding: Any
    index: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]


def embed(body: EmbedBody, model: str) -> Translation:
    """Embeddings of one text or of several."""
    fields: dict[str, Any] = {"model": model, "input": body.input}
    put(fields, dimensions=body.dimensions)
    return _Embeddings(body.model, fields)


def embeddings(body: EmbeddingsBody, model: str) -> Translation:
    """The embedding of one text."""
    return _OneEmbedding(body.model, {"model": model, "input": body.prompt})


class _Embeddings(Translation):
    path = EMBEDDINGS

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        self.body = msgspec.json.encode(fields)
        self._model = model
        self._began = time.monotonic_ns()

    def answer(self, answer: dict[str, Any]) -> bytes:
        usage = read_usage(answer.get("usage"))
        return msgspec.json.encode(
            {
                "model": self._model,
                "embeddings": _vectors(answer),
                "total_duration": time.monotonic_ns() - self._began,
                "load_duration": 0,
                "prompt_eval_count": usage.prompt,
            }
        )


class _OneEmbedding(_Embeddings):
    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"embedding": next(iter(_vectors(answer)), [])})


def _vectors(answer: dict[str, Any]) -> list[Any]:
    entries = of_engine(answer, _Vectors).data
    return [entry.embedding for entry in sorted(entries, key=lambda entry: entry.index)]
