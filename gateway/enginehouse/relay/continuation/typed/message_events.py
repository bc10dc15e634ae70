"""The events of Anthropic's Messages: https://docs.anthropic.com/en/docs/build-with-claude/streaming."""

from __future__ import annotations

from typing import Any, Final

from enginehouse.relay.continuation.chunks import StreamChunk
from enginehouse.relay.continuation.restrictions import number
from enginehouse.relay.continuation.typed.typed_answer import (
    NOTHING,
    TypedAnswer,
    called,
    finished,
    said,
    thought,
    written,
)

_FINISHES: Final = {"max_tokens": "length"}
_REASONS: Final = {"length": "max_tokens"}
_OF_PROMPTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class MessageEvents(TypedAnswer):
    """A message. Its text is in blocks, one after the other, of which the last may be open."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = 0
        self._is_open = self._is_told = False

    def read(self, event: dict[str, Any]) -> StreamChunk | None:
        kind = event["type"]
        if kind == "message_stop":
            return None
        if kind == "ping":
            return NOTHING
        if kind == "message_start":
            self.is_begun = True
            return self._begun(event["message"].get("usage") or {})
        if kind == "content_block_start":
            return self._opened(event)
        if kind == "content_block_delta":
            return self._added(event["delta"])
        if kind == "content_block_stop":
            self._is_open = False
            return NOTHING
        if kind != "message_delta":
            raise ValueError(kind)
        self._is_told = True
        reason, made = event["delta"].get("stop_reason"), number(event.get("usage") or {}, "output_tokens")
        return finished(_FINISHES.get(reason, "stop"), None if made is None else {"completion_tokens": made})

    def _begun(self, usage: dict[str, Any]) -> StreamChunk:
        prompt = sum(number(usage, name) or 0 for name in _OF_PROMPTS)
        return StreamChunk(usage={"prompt_tokens": prompt}) if prompt else NOTHING

    def _opened(self, event: dict[str, Any]) -> StreamChunk:
        block, self._blocks = event["content_block"], event["index"] + 1
        if block["type"] != "text":
            return called() if block["type"].endswith("tool_use") else thought()
        self._is_open = True
        return said(block["text"]) if block.get("text") else NOTHING

    def _added(self, delta: dict[str, Any]) -> StreamChunk:
        kind = delta["type"]
        if kind == "text_delta":
            return said(delta["text"])
        if kind == "citations_delta":
            raise ValueError(kind)
        return called() if kind == "input_json_delta" else thought()

    def _piece(self, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        begun = b"" if self._is_open else self._open()
        return begun + written({"type": "content_block_delta", "index": self._blocks - 1, "delta": delta})

    def _open(self) -> bytes:
        self._is_open = True
        self._blocks += 1
        block = {"type": "text", "text": ""}
        return written({"type": "content_block_start", "index": self._blocks - 1, "content_block": block})

    def done(self, text: str | None) -> bytes:
        last = written({"type": "message_stop"})
        if self._is_told:
            return last
        closed = written({"type": "content_block_stop", "index": self._blocks - 1}) if self._is_open else b""
        reason = "stop_sequence" if self._stopped_at else _REASONS.get(self._finish, "end_turn")
        delta = {"stop_reason": reason, "stop_sequence": self._stopped_at}
        return closed + written({"type": "message_delta", "delta": delta, "usage": self._used()}) + last

    def _used(self) -> dict[str, int]:
        """The usage. Anthropic counts cached tokens apart from those of the input."""
        cached = number(self._usage.get("prompt_tokens_details") or {}, "cached_tokens") or 0
        return {
            "input_tokens": (number(self._usage, "prompt_tokens") or 0) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": number(self._usage, "completion_tokens") or 0,
        }
