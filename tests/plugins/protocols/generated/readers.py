"""What the vendors' own parsers make of what the gateway writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ollama
import openai._streaming
from openai import omit
from openai._models import construct_type_unchecked
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent


@dataclass
class Understood:
    """What a client has understood."""

    thinking: str = ""
    spoken: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    finish: str | None = None
    prompt: int = 0
    cached: int = 0
    output: int = 0
    error: str = ""
    """An error that the client is told in the middle."""


def read_message(stream: bytes) -> Understood:
    """A stream of Anthropic's, by its SDK, whose blocks follow one another."""
    import anthropic._streaming  # takes a second of each process of ``make test``
    from anthropic.lib.streaming._messages import accumulate_event

    understood = Understood()
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    opened, is_open, ended = 0, False, False
    for sse in anthropic._streaming.SSEDecoder().iter_bytes(iter([stream])):
        assert not ended, "an event follows the end"
        data = json.loads(sse.data)
        assert sse.event == data["type"]
        kind = data["type"]
        if kind == "error":
            understood.error, ended = data["error"]["message"], True
            continue
        if kind == "ping":
            continue
        if kind == "content_block_start":
            assert (is_open, data["index"]) == (False, opened)
            is_open, opened = True, opened + 1
        elif kind.startswith("content_block"):
            assert (is_open, data["index"]) == (True, opened - 1)
            is_open = kind != "content_block_stop"
        elif kind == "message_delta":
            assert not is_open
        elif kind == "message_stop":
            ended = True
        snapshot = accumulate_event(event=data, current_snapshot=snapshot, json_bufs=buffers)
    assert ended
    if snapshot is not None:
        _understand_message(snapshot, understood)
    return understood


def read_whole_message(answer: bytes) -> Understood:
    from anthropic.types import Message

    understood = Understood()
    _understand_message(Message.model_validate_json(answer), understood)
    return understood


def _understand_message(message: Any, understood: Understood) -> None:
    for block in message.content:
        if block.type == "tool_use":
            understood.calls.append((block.name, block.input))
            understood.ids.append(block.id)
        elif block.type == "thinking":
            understood.thinking += block.thinking
        else:
            understood.spoken += block.text
    understood.finish = message.stop_reason
    usage = message.usage
    understood.cached, understood.output = usage.cache_read_input_tokens or 0, usage.output_tokens
    understood.prompt = usage.input_tokens + understood.cached


def read_response(stream: bytes, *, by_sdk: bool = True) -> Understood:
    """A stream of OpenAI's Responses, by its SDK, or by the order of its events and the last one: that is faster."""
    understood, state = Understood(), ResponseStreamState[Any](input_tools=omit, text_format=omit)
    final, number, failed = None, 0, False
    for sse in openai._streaming.SSEDecoder().iter_bytes(iter([stream])):
        data = sse.json()
        assert (sse.event, data["sequence_number"]) == (data["type"], number)
        number += 1
        assert final is None, "an event follows the end"
        assert not understood.error
        if data["type"] == "error":
            understood.error = data["message"]
            assert data["error"]["message"] == data["message"]
            continue
        assert not failed
        if data["type"] == "response.failed":
            failed = True
            assert isinstance(data["response"]["error"]["code"], str)
            continue
        if by_sdk:
            event: Any = construct_type_unchecked(type_=ResponseStreamEvent, value=data)  # type: ignore[arg-type]
            state.handle_event(event)
        if data["type"] in ("response.completed", "response.incomplete"):
            final = Response.model_validate(data["response"])
    assert failed == bool(understood.error)
    if final is not None:
        _understand_response(final, understood)
    assert final is not None or understood.error
    return understood


def read_whole_response(answer: bytes) -> Understood:
    understood = Understood()
    _understand_response(Response.model_validate_json(answer), understood)
    return understood


def _understand_response(response: Response, understood: Understood) -> None:
    for item in response.output:
        if item.type == "message":
            for part in item.content:
                understood.spoken += part.text if part.type == "output_text" else part.refusal
        elif item.type == "reasoning":
            understood.thinking += "".join(part.text for part in item.content or ())
        elif item.type == "custom_tool_call":
            understood.calls.append((item.name, {"input": item.input}))
            understood.ids.append(item.call_id)
        else:
            assert item.type == "function_call"
            understood.calls.append((item.name, json.loads(item.arguments)))
            understood.ids.append(item.call_id)
    details = response.incomplete_details
    understood.finish = response.status if details is None else details.reason
    assert response.usage is not None
    usage = response.usage
    understood.prompt, understood.output = usage.input_tokens, usage.output_tokens
    understood.cached = usage.input_tokens_details.cached_tokens


def read_as_codex(stream: bytes) -> Understood:
    """The same stream by the rules of Codex (github.com/openai/codex, codex-rs/codex-api/src/sse/responses.rs).

    It takes whole items from ``response.output_item.done`` if they have the fields of its ``ResponseItem``, ends with
    ``response.completed`` and learns of errors from ``response.failed`` alone.
    """
    understood = Understood()
    for sse in openai._streaming.SSEDecoder().iter_bytes(iter([stream])):
        data = sse.json()
        kind = data["type"]
        if kind == "response.output_item.done":
            _take_as_codex(data["item"], understood)
        elif kind == "response.failed":
            error = data["response"]["error"]
            assert all(isinstance(error.get(name), str | None) for name in ("type", "code", "message"))
            understood.error = error["message"]
        elif kind == "response.completed":
            usage = data["response"]["usage"]
            understood.finish = "completed"
            understood.prompt, understood.output = usage["input_tokens"], usage["output_tokens"]
            understood.cached = usage["input_tokens_details"]["cached_tokens"]
            assert isinstance(usage["total_tokens"], int)
            assert isinstance(usage["output_tokens_details"]["reasoning_tokens"], int)
    return understood


def _take_as_codex(item: dict[str, Any], understood: Understood) -> None:
    if item["type"] == "message":
        assert isinstance(item["role"], str)
        if all(part["type"] == "output_text" for part in item["content"]):  # else the whole item is unknown to it
            understood.spoken += "".join(part["text"] for part in item["content"])
    elif item["type"] == "reasoning":
        assert isinstance(item["id"], str)
        assert item["summary"] == []
        understood.thinking += "".join(part["text"] for part in item["content"])
    else:
        assert item["type"] == "function_call"
        understood.calls.append((item["name"], json.loads(item["arguments"])))
        understood.ids.append(item["call_id"])


def read_ollama(lines: bytes) -> Understood:
    """Lines of Ollama's, by its client."""
    understood, done = Understood(), False
    for line in _lines(lines):
        assert not done, "a line follows the end"
        if "error" in line:
            understood.error, done = line["error"], True
            continue
        piece = ollama.ChatResponse(**line)
        understood.spoken += piece.message.content or ""
        understood.thinking += piece.message.thinking or ""
        for call in piece.message.tool_calls or ():
            understood.calls.append((call.function.name, dict(call.function.arguments)))
        understood.ids += [call["id"] for call in line["message"].get("tool_calls") or ()]
        if piece.done:
            done = True
            understood.finish = piece.done_reason
            understood.prompt, understood.output = piece.prompt_eval_count or 0, piece.eval_count or 0
    assert done
    return understood


def _lines(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.split(b"\n"):
        if line:
            yield json.loads(line)
