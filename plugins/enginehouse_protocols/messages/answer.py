"""A chat's answer as a message: whole, or its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from enginehouse_kit.protocols import Envelope
from enginehouse_protocols.chats import ChatTranslation, new_id
from enginehouse_protocols.engine_chat import EngineChat
from enginehouse_protocols.fields import event_bytes, parsed
from enginehouse_protocols.said import Block, Blocks, BlockWriter, Thinking, Usage, whole

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_DELTA: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,"delta":{"type":"%s","%s":%%s}}\n\n'
)
"""Nearly all events of a stream are deltas; they are written around their text, which is faster."""
_ADDS_TEXT: Final = _DELTA % (b"text_delta", b"text")
_ADDS_THOUGHT: Final = _DELTA % (b"thinking_delta", b"thinking")
_ADDS_JSON: Final = _DELTA % (b"input_json_delta", b"partial_json")


def message(model: str, blocks: Blocks, stops: Sequence[str]) -> dict[str, Any]:
    """The whole message. ``stops``: as of ``stop``."""
    content = [_content(block) for block in blocks.all]
    return empty_message(model) | {"content": content, **stop(blocks, stops), "usage": usage_object(blocks.usage)}


def _content(block: Block) -> dict[str, Any]:
    if block.call is None:
        return empty_block(block) | {"thinking" if block.kind is Thinking else "text": block.text}
    return empty_block(block) | {"input": parsed(block.call.arguments)}


def empty_block(block: Block) -> dict[str, Any]:
    """A block that has not begun. A refusal is a text."""
    if (call := block.call) is not None:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    if block.kind is Thinking:
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def empty_message(model: str) -> dict[str, Any]:
    """A message that has not begun."""
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_object(Usage()),
    }


def stop(blocks: Blocks, stops: Sequence[str]) -> dict[str, Any]:
    """Why the message ended. A chat whose ``tool_choice`` names the tool that it calls ends with ``stop``.

    ``stops``: the stop sequences of the client. An engine has others too, such as those of its template.
    """
    finish = blocks.finish
    if finish.stopped_at and finish.stopped_at in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stopped_at}
    usual = "tool_use" if blocks.calls else "refusal" if blocks.refuses else "end_turn"
    return {"stop_reason": _STOPS.get(finish.reason, usual), "stop_sequence": None}


def usage_object(usage: Usage) -> dict[str, int]:
    """Token counts; Anthropic counts cached tokens apart from those of the input."""
    return {
        "input_tokens": max(0, usage.prompt - usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def error_object(status: int, envelope: Envelope) -> dict[str, Any]:
    """An error in Anthropic's form, with the gateway's other fields beside its own two."""
    error = dict(envelope["error"])
    details = error.get("details") or {}
    if error.get("code") == "context_length_exceeded" and "tokens" in details and "limit" in details:
        error["message"] = f"prompt is too long: {details['tokens']} tokens > {details['limit']} maximum"
    other = "invalid_request_error" if 400 <= status < 500 else "api_error"
    return {"type": "error", "error": {**error, "type": _ERROR_TYPES.get(status, other)}}


_encode = msgspec.json.Encoder().encode


class MessageTranslation(ChatTranslation, BlockWriter):
    """A message for ``model``, asked for as a chat of these ``fields``."""

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._model = model
        self._stops: Sequence[str] = fields.get("stop", ())
        self._begun = False
        self._chat = EngineChat()
        self._blocks = Blocks(keeps_text=False)

    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message(self._model, whole(self._chat.read_whole(answer)), self._stops))

    def event(self, event: dict[str, Any]) -> bytes:
        said = self._chat.read(event)
        out = [] if self._begun else [self._beginning()]
        self._blocks.take(said, self, out)
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self) -> bytes:
        self._chat.check()
        out = [] if self._begun else [self._beginning()]
        blocks = self._blocks
        blocks.end(self, out)
        delta = stop(blocks, self._stops)
        out.append(event_bytes("message_delta", {"delta": delta, "usage": usage_object(blocks.usage)}))
        return b"".join([*out, event_bytes("message_stop", {})])

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        return event_bytes("error", error_object(status, envelope))

    def ping(self) -> bytes:
        return event_bytes("ping", {})

    def _beginning(self) -> bytes:
        self._begun = True
        return event_bytes("message_start", {"message": empty_message(self._model)}) + self.ping()

    # --- blocks

    def begin_block(self, block: Block) -> bytes:
        return event_bytes("content_block_start", {"index": self._place, "content_block": empty_block(block)})

    def add_to_block(self, block: Block, text: str) -> bytes:
        delta = _ADDS_JSON if block.call is not None else _ADDS_THOUGHT if block.kind is Thinking else _ADDS_TEXT
        return delta % (len(self._blocks.all) - 1, _encode(text))

    def end_block(self, block: Block) -> bytes:
        return event_bytes("content_block_stop", {"index": self._place})

    @property
    def _place(self) -> int:
        return len(self._blocks.all) - 1
