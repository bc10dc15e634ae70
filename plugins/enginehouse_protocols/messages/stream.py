"""A chat's events as those of a message."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.protocols import Envelope
from enginehouse_protocols.chats import ChatTranslation
from enginehouse_protocols.fields import event_bytes
from enginehouse_protocols.messages.answer import (
    empty_block,
    empty_message,
    error_object,
    message,
    stop,
    usage_object,
)
from enginehouse_protocols.said.blocks import Block, Blocks, BlockWriter, whole
from enginehouse_protocols.said.engine_chat import EngineChat
from enginehouse_protocols.said.said import Thinking

_encode = msgspec.json.Encoder().encode
_DELTA: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,"delta":{"type":"%s","%s":%%s}}\n\n'
)
"""Nearly all events of a stream are deltas; they are written around their text, which is faster."""
_ADDS_TEXT: Final = _DELTA % (b"text_delta", b"text")
_ADDS_THOUGHT: Final = _DELTA % (b"thinking_delta", b"thinking")
_ADDS_JSON: Final = _DELTA % (b"input_json_delta", b"partial_json")


class MessageTranslation(ChatTranslation, BlockWriter):
    """A message for ``model``, asked for as a chat of these ``fields``."""

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._model = model
        self._begun = False
        self._chat = EngineChat()
        self._blocks = Blocks(keeps_text=False)

    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message(self._model, whole(self._chat.read_whole(answer))))

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
        out.append(event_bytes("message_delta", {"delta": stop(blocks), "usage": usage_object(blocks.usage)}))
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
