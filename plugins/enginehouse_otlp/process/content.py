"""Prompts and answers as messages of OpenTelemetry's conventions for generative AI, in JSON.

A message has ``parts``: ``text`` and ``reasoning`` with their ``content``, ``tool_call`` and ``tool_call_response``.
Other parts, such as images, keep the form that they have in the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from enginehouse_otlp.process.streamed_content import streamed_messages

Json = dict[str, Any]
_BROKEN_OFF = "error"
"""The conventions' reason for an end that never came."""


def prompt_attributes(body: bytes) -> Iterator[tuple[str, str]]:
    """The instructions and the messages of a request, as far as it has them."""
    asked = _decoded(body)
    if instructions := asked.get("system") or asked.get("instructions"):
        yield "gen_ai.system_instructions", _json(list(_parts(instructions)))
    if told := asked.get("messages") or asked.get("input") or asked.get("prompt"):
        messages = told if isinstance(told, list) else [told]
        yield "gen_ai.input.messages", _json([_message(each, "user") for each in messages])


def answer_attributes(body: bytes, stream: bool) -> Iterator[tuple[str, str]]:
    """The messages of an answer, one for each choice; those of a stream are put together from its events."""
    messages = streamed_messages(body) if stream else list(_answered(_decoded(body)))
    if messages:
        full = [{**_message(each, "assistant"), "finish_reason": each.get("end") or _BROKEN_OFF} for each in messages]
        yield "gen_ai.output.messages", _json(full)


def _answered(answer: Json) -> Iterator[Json]:
    """The messages of an answer of OpenAI's APIs or Anthropic's. ``end``: why it ended."""
    for choice in answer.get("choices") or ():
        yield {**(choice.get("message") or {"content": choice.get("text")}), "end": choice.get("finish_reason")}
    if content := answer.get("content") or answer.get("output"):
        yield {"content": content, "end": answer.get("stop_reason") or answer.get("status")}


def _message(told: Any, role: str) -> Json:
    if not isinstance(told, dict):
        return {"role": role, "parts": list(_parts(told))}
    role = told.get("role", role)
    if role == "tool":
        response = {"type": "tool_call_response", "id": told.get("tool_call_id"), "response": told.get("content")}
        return {"role": role, "parts": [response]}
    thoughts = told.get("reasoning_content") or told.get("reasoning")
    parts = [{"type": "reasoning", "content": thoughts}] if isinstance(thoughts, str) else []
    parts += _parts(told.get("content"))
    parts += [_tool_call(call.get("id"), call["function"]) for call in told.get("tool_calls") or ()]
    return {"role": role, "parts": parts}


def _parts(content: Any) -> Iterator[Json]:
    """The parts of a message's content, which is a text or a list of parts."""
    for part in content if isinstance(content, list) else [content] if content else []:
        if not isinstance(part, dict):
            yield {"type": "text", "content": part}
        elif "text" in part:
            yield {"type": "text", "content": part["text"]}
        elif part.get("type") == "tool_use":
            yield _tool_call(part.get("id"), part)
        elif part.get("type") == "tool_result":
            yield {"type": "tool_call_response", "id": part.get("tool_use_id"), "response": part.get("content")}
        elif part.get("type") == "message":
            yield from _parts(part.get("content"))
        else:
            yield part


def _tool_call(call_id: Any, function: Json) -> Json:
    arguments = function.get("input", function.get("arguments"))
    return {"type": "tool_call", "id": call_id, "name": function.get("name"), "arguments": arguments}


def _decoded(text: bytes) -> Json:
    """The JSON object; empty if ``text`` is none, such as an answer of which only a part is kept."""
    try:
        return msgspec.json.decode(text, type=Json)
    except (ValueError, RecursionError):
        return {}


def _json(value: list[Json]) -> str:
    return msgspec.json.encode(value).decode()
