"""Decodes the events of OpenAI's streams for filters, and encodes what filters make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from enginehouse_kit.interceptors import Event, EventKind

KINDS: Final = frozenset(get_args(EventKind))
NEED_NO_DATA: Final = frozenset({"text", "thinking", "refusal", "finish"})
"""The kinds of which the text says all."""
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "thinking": ("reasoning_content", "reasoning"),
    "text": ("content",),
    "refusal": ("refusal",),
    "tool": ("tool_calls", "function_call"),
}
"""The fields of a chat's ``delta``, in the order in which their events pass."""
_SHARED: Final = ("id", "object", "created", "model", "system_fingerprint")
_COUNTS: Final = ("usage", "timings")
_CHUNKS: Final = {"chat.completion": "chat.completion.chunk"}
_NOT_IN_EVENTS: Final = frozenset({"choices", "usage", "object"})


def events_of(data: dict[str, Any]) -> list[Event]:
    """What a decoded event says: one thing, or several about its choices."""
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        return _without_choices(data)
    if any(_has_parts(each) for each in choices):
        choices = [_without_parts(each) if _has_parts(each) else each for each in choices]
        data = {**data, "choices": choices}
    found = [(choice, *said) for choice in choices for said in _said(choice)]
    if len(found) == 1:
        choice, kind, text = found[0]
        return [Event(kind, _index(choice), text, data)]
    last = len(found) - 1
    begun: set[int] = set()
    events = []
    for number, (choice, kind, text) in enumerate(found):
        part = _part(choice, kind, first=id(choice) not in begun)
        begun.add(id(choice))
        shared = {name: value for name, value in data.items() if number == last or name not in _COUNTS}
        events.append(Event(kind, _index(choice), text, {**shared, "choices": [part]}))
    return events


def completed(event: Event, like: Mapping[str, Any], *, chat: bool) -> Event:
    """An event that a filter has made, with its text in its data; ``like``: an earlier one. Raises ``ValueError``."""
    data = event.data or _made(event, like, chat=chat)
    if event.kind in _KEYS:
        data = _with_text(data, event)
    return event if data is event.data else msgspec.structs.replace(event, data=data)


def encoded(event: Event) -> bytes:
    """The event as it stands in a stream. Raises ``TypeError`` or ``ValueError``."""
    return b"data: %s\n\n" % msgspec.json.encode(event.data)


def _without_choices(data: dict[str, Any]) -> list[Event]:
    error, content = data.get("error"), data.get("content")
    if error is not None:
        message = error.get("message") if isinstance(error, dict) else error
        return [Event("error", 0, message if isinstance(message, str) else "", data)]
    if isinstance(content, str):
        return _of_llama_server(data, content)
    return [Event("usage" if data.get("usage") is not None else "other", 0, "", data)]


def _of_llama_server(data: dict[str, Any], content: str) -> list[Event]:
    """What an event of llama-server's own completions says: a text, the end, or both."""
    index, stops = _index(data), bool(data.get("stop"))
    if content and stops:
        text = {"index": index, "content": content, "stop": False}
        return [Event("text", index, content, text), Event("finish", index, "", {**data, "content": ""})]
    return [Event("text" if content else "finish" if stops else "other", index, content, data)]


def _has_parts(choice: object) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and isinstance(delta.get("content"), list)


def _without_parts(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice whose content is a list of typed parts, with texts in their place."""
    delta = choice["delta"]
    texts = {"content": "", "reasoning_content": "", "refusal": ""}
    for part in delta["content"]:
        key, text = _of_part(part)
        texts[key] += text
    return {**choice, "delta": delta | {key: text for key, text in texts.items() if text or key == "content"}}


def _of_part(part: object) -> tuple[str, str]:
    """The field of a delta that a part belongs to, and its text."""
    if not isinstance(part, dict):
        return "content", part if isinstance(part, str) else ""
    kind = part.get("type")
    key = "reasoning_content" if kind in ("thinking", "reasoning") else "refusal" if kind == "refusal" else "content"
    text = part.get("text") if key == "content" else part.get(kind) or part.get("text")
    if isinstance(text, list):
        return key, "".join([_of_part(each)[1] for each in text])
    return key, text if isinstance(text, str) else ""


def _said(choice: object) -> list[tuple[EventKind, str]]:
    """The things that a choice says, with their texts."""
    if not isinstance(choice, dict):
        return [("other", "")]
    found: list[tuple[EventKind, str]] = []
    delta = choice.get("delta")
    if isinstance(delta, dict):
        for kind, keys in _KEYS.items():
            for key in keys:
                value = delta.get(key)
                if value and (kind == "tool" or isinstance(value, str)):
                    found.append((kind, _arguments(value) if kind == "tool" else value))  # type: ignore[arg-type]
                    break
    elif isinstance(text := choice.get("text"), str) and text:
        found.append(("text", text))
    if choice.get("finish_reason") is not None:
        found.append(("finish", ""))
    return found or [("other", "")]


def _arguments(calls: object) -> str:
    """The pieces of the arguments of calls."""
    texts = []
    for call in calls if isinstance(calls, list) else (calls,):
        function = call.get("function", call) if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        texts.append(arguments if isinstance(arguments, str) else "")
    return "".join(texts)


def _part(choice: dict[str, Any], kind: str, *, first: bool) -> dict[str, Any]:
    """A choice that says only one of its things. ``first``: also what is none of them, such as the role."""
    part = dict(choice)
    if kind != "finish":
        part["finish_reason"] = None
    if kind != "text":
        part.pop("logprobs", None)
        part.pop("token_ids", None)
        if "text" in part:
            part["text"] = ""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        own = _KEYS.get(kind, ())
        others = {key for keys in _KEYS.values() for key in keys} - {*own}
        part["delta"] = {key: value for key, value in delta.items() if key in own or (first and key not in others)}
    return part


def _made(event: Event, like: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """The data of an event that a filter made of its text and its kind, one of ``NEED_NO_DATA``."""
    shared = {name: like[name] for name in _SHARED if name in like}
    if "content" in like and "choices" not in like and event.kind in ("text", "finish"):
        return {**shared, "index": event.choice, "content": event.text, "stop": event.kind == "finish"}
    if event.kind == "finish":
        choice: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
        reason = event.text or "stop"
    else:
        choice = {"delta": {_KEYS[event.kind][0]: event.text}} if chat else {"text": event.text}
        reason = None
    return {**shared, "choices": [{"index": event.choice, **choice, "finish_reason": reason}]}


def _with_text(data: dict[str, Any], event: Event) -> dict[str, Any]:
    """``data`` with the text of the event, which a filter may have changed."""
    choices = data.get("choices")
    if event.kind == "text" and choices is None and "content" in data:
        return data if data["content"] == event.text else {**data, "content": event.text}
    if not isinstance(choices, list):
        raise ValueError("an event with a text needs choices in its data")
    if any((event.kind, event.text) in _said(each) for each in choices):
        return data
    return {**data, "choices": [_choice_with(each, event) if _is_of(each, event) else each for each in choices]}


def _is_of(choice: object, event: Event) -> bool:
    return isinstance(choice, dict) and _index(choice) == event.choice


def _choice_with(choice: dict[str, Any], event: Event) -> dict[str, Any]:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return {**choice, "text": event.text} if event.kind == "text" else choice
    keys = _KEYS[event.kind]
    key = next((key for key in keys if key in delta), keys[0])
    if event.kind != "tool":
        return {**choice, "delta": {**delta, key: event.text}}
    calls = delta.get(key)
    if _arguments(calls) == event.text or not isinstance(calls, list) or len(calls) != 1:
        return choice
    call = {**calls[0], "function": {**(calls[0].get("function") or {}), "arguments": event.text}}
    return {**choice, "delta": {**delta, key: [call]}}


def _index(choice: object) -> int:
    index = choice.get("index") if isinstance(choice, dict) else 0
    return index if isinstance(index, int) else 0


class _Asked(msgspec.Struct):
    stream: bool = False
    stream_options: dict[str, Any] | None = None


def asks_for_stream(body: bytes) -> bool:
    """Whether a request asks for a stream."""
    return _read(body).stream


def as_stream(answer: dict[str, Any], body: bytes) -> bytes | None:
    """The events of ``answer``, with its usage if the request ``body`` asks for that. ``None`` if it has no choices."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        return None
    options = _read(body).stream_options or {}
    events = [*_events(answer, choices, usage=options.get("include_usage") is True)]
    return b"".join([b"data: %s\n\n" % msgspec.json.encode(each) for each in events]) + b"data: [DONE]\n\n"


def _events(answer: dict[str, Any], choices: list[dict[str, Any]], *, usage: bool) -> Iterator[dict[str, Any]]:
    kind = answer.get("object")
    shared = {name: value for name, value in answer.items() if name not in _NOT_IN_EVENTS}
    if isinstance(kind, str):
        shared["object"] = _CHUNKS.get(kind, kind)
    for number, choice in enumerate(choices):
        own = {name: value for name, value in choice.items() if name not in ("message", "finish_reason")}
        own.setdefault("index", number)
        message = choice.get("message")
        begun = {"delta": _delta(message)} if isinstance(message, dict) else {}
        yield {**shared, "choices": [{**own, **begun, "finish_reason": None}]}
        ended: dict[str, Any] = {"delta": {}} if begun else {"text": ""}
        reason = choice.get("finish_reason") or "stop"
        yield {**shared, "choices": [{"index": own["index"], **ended, "finish_reason": reason}]}
    if usage and answer.get("usage") is not None:
        yield {**shared, "choices": [], "usage": answer["usage"]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    """A message as one piece. The calls of tools have indexes in streams."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [{"index": at, **call} for at, call in enumerate(calls) if isinstance(call, dict)]}


def _read(body: bytes) -> _Asked:
    try:
        return msgspec.json.decode(body, type=_Asked)
    except (ValueError, RecursionError):
        return _Asked()
