"""The protocol of https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import msgspec

from enginehouse import InvalidRequest
from enginehouse_kit.protocols import ChatPiece, Envelope, Native, Protocol, ProtocolRequest, Translation, TypedAnswer
from enginehouse_protocols.counted_tokens import CountedTokens
from enginehouse_protocols.engine_chat import read_usage
from enginehouse_protocols.fields import event_bytes, number, read
from enginehouse_protocols.messages.answer import MessageTranslation, error_object, usage_object
from enginehouse_protocols.messages.request import MessagesBody, chat_fields, check_thread


class _Threaded(msgspec.Struct):
    thread: Any = None


_threaded: Final = msgspec.json.Decoder(_Threaded).decode
_FINISHES: Final = {"max_tokens": "length"}
_REASONS: Final = {"length": "max_tokens"}
_OF_PROMPTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_NOTHING: Final = ChatPiece()
_CALLED: Final = ChatPiece(other="a tool call")
_THOUGHT: Final = ChatPiece(other="reasoning")


class Messages(Protocol):
    """Anthropic's Messages."""

    name: ClassVar[str] = "messages"
    paths = ("/v1/messages", "/v1/messages/count_tokens")

    def translate(self, request: ProtocolRequest) -> Translation:
        body = read(request.body, MessagesBody)
        if request.path.endswith("/count_tokens"):
            return CountedTokens(chat_fields(body), {})
        if body.compaction is not None:
            raise InvalidRequest("Only Anthropic does a 'compaction': leave it out", param="compaction")
        return MessageTranslation(body.model, chat_fields(body))

    def native(self, request: ProtocolRequest) -> Native:
        """Refuse threads: the gateway does not know which engine has one, and most engines ignore the field."""
        if b'"thread"' in request.body:
            with suppress(ValueError, RecursionError):  # the engine refuses such a body
                check_thread(_threaded(request.body).thread)
        return Native()

    def typed_answer(self, path: str) -> TypedAnswer | None:
        return None if path.endswith("/count_tokens") else MessageEvents()

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(error_object(status, envelope))


class MessageEvents(TypedAnswer):
    """A message of an engine that speaks the protocol itself. Its text is in blocks, of which the last may be open.

    Its events: https://docs.anthropic.com/en/docs/build-with-claude/streaming.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._is_open = self._is_told = False

    def read(self, event: dict[str, Any]) -> ChatPiece | None:
        kind = event["type"]
        if kind == "message_stop":
            return None
        if kind == "ping":
            return _NOTHING
        if kind == "message_start":
            self.is_begun = True
            return self._begun(event["message"].get("usage") or {})
        if kind == "content_block_start":
            return self._opened(event)
        if kind == "content_block_delta":
            return self._added(event["delta"])
        if kind == "content_block_stop":
            self._is_open = False
            return _NOTHING
        if kind != "message_delta":
            raise ValueError(kind)
        self._is_told = True
        reason, made = event["delta"].get("stop_reason"), number(event.get("usage") or {}, "output_tokens")
        usage = None if made is None else {"completion_tokens": made}
        return ChatPiece(finish=_FINISHES.get(reason, "stop"), usage=usage)

    def _begun(self, usage: dict[str, Any]) -> ChatPiece:
        prompt = sum(number(usage, name) or 0 for name in _OF_PROMPTS)
        return ChatPiece(usage={"prompt_tokens": prompt}) if prompt else _NOTHING

    def _opened(self, event: dict[str, Any]) -> ChatPiece:
        block, self._blocks = event["content_block"], event["index"] + 1
        if block["type"] != "text":
            return _CALLED if block["type"].endswith("tool_use") else _THOUGHT
        self._is_open = True
        return ChatPiece(block.get("text") or "")

    def _added(self, delta: dict[str, Any]) -> ChatPiece:
        kind = delta["type"]
        if kind == "text_delta":
            return ChatPiece(delta["text"])
        if kind == "citations_delta":
            raise ValueError(kind)
        return _CALLED if kind == "input_json_delta" else _THOUGHT

    def text(self, text: str) -> bytes:
        begun = b"" if self._is_open else self._open()
        delta = {"type": "text_delta", "text": text}
        return begun + event_bytes("content_block_delta", {"index": self._blocks - 1, "delta": delta})

    def _open(self) -> bytes:
        self._is_open = True
        self._blocks += 1
        block = {"type": "text", "text": ""}
        return event_bytes("content_block_start", {"index": self._blocks - 1, "content_block": block})

    def end(self, text: str | None, finish: str, stopped_at: str | None, usage: Mapping[str, Any]) -> bytes:
        last = event_bytes("message_stop", {})
        if self._is_told:
            return last
        closed = event_bytes("content_block_stop", {"index": self._blocks - 1}) if self._is_open else b""
        reason = "stop_sequence" if stopped_at else _REASONS.get(finish, "end_turn")
        delta = {"stop_reason": reason, "stop_sequence": stopped_at}
        return closed + event_bytes("message_delta", {"delta": delta, "usage": usage_object(read_usage(usage))}) + last
