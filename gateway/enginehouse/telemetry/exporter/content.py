"""Prompts and answers as ``gen_ai.input.messages`` and ``gen_ai.output.messages``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Message = dict[str, Any]


def input_messages(body: bytes) -> str:
    """The messages of a request, as JSON; empty if it has none."""
    asked = _decoded(body)
    if not isinstance(asked, dict):
        return ""
    told = asked.get("messages") or asked.get("input") or asked.get("prompt") or ""
    messages = told if isinstance(told, list) else [{"role": "user", "content": told}]
    return _json([_message(each) for each in messages])


def output_messages(body: bytes, stream: bool) -> str:
    """The messages of an answer, as JSON; those of a stream are put together from its events."""
    if not stream:
        return _json(_answered(_decoded(body)))
    text = "".join(_delta(event) for event in _events(body))
    return _json([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


def _answered(answer: Any) -> list[Message]:
    if not isinstance(answer, dict):
        return []
    if isinstance(choices := answer.get("choices"), list):
        found = [choice for choice in choices if isinstance(choice, dict)]
        return [_message(c.get("message") or {"content": c.get("text", "")}, "assistant") for c in found]
    told = answer.get("content") or answer.get("output")
    return [_message({"content": told}, "assistant")] if told else []


def _events(body: bytes) -> Iterator[Mapping[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data:") and isinstance(event := _decoded(line[5:]), dict):
            yield event


def _delta(event: Mapping[str, Any]) -> str:
    """The text that an event of a chat, a completion, Anthropic's messages or OpenAI's responses adds."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else event
    delta = choice.get("delta")
    text = delta.get("content") or delta.get("text") if isinstance(delta, dict) else delta or choice.get("text")
    return text if isinstance(text, str) else ""


def _message(told: Any, role: str = "user") -> Message:
    if not isinstance(told, dict):
        return {"role": role, "parts": [{"type": "text", "content": told}]}
    content = told.get("content", "")
    parts = content if isinstance(content, list) else [{"type": "text", "content": content}]
    return {"role": told.get("role", role), "parts": parts}


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return None


def _json(messages: list[Message]) -> str:
    return msgspec.json.encode(messages).decode() if messages else ""
