"""A chat's events as those of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from enginehouse import Envelope, Translation
from enginehouse_protocols.chats import CHATS, Piece, ToolPiece, Usage, chat_body, read_piece
from enginehouse_protocols.fields import event_bytes
from enginehouse_protocols.messages.answer import empty_message, error_object, message, stop_reason, usage_object


class MessageTranslation(Translation):
    """A message for ``model``, asked for as a chat of these ``fields``.

    A message consists of blocks, one after the other: thinking, text, calls of tools. A new kind of piece, or another
    tool, ends the open block and begins the next.
    """

    path = CHATS

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        self.body = chat_body(fields)
        self._model = model
        self._begun = False
        self._blocks = 0
        self._open = ""
        self._tool = -1
        self._last = Piece()
        self._usage = Usage()

    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message(self._model, read_piece(answer)))

    def event(self, event: dict[str, Any]) -> bytes:
        return b"".join(self._events(read_piece(event)))

    def end(self) -> bytes:
        last = self._last
        delta = {
            "stop_reason": stop_reason(last, called=self._tool >= 0),
            "stop_sequence": last.stopped_at or None,
        }
        usage = usage_object(self._usage)
        return b"".join(
            [
                *self._beginning(),
                *self._close(),
                event_bytes("message_delta", {"delta": delta, "usage": usage}),
                event_bytes("message_stop", {}),
            ]
        )

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        return event_bytes("error", error_object(status if status >= 400 else 500, envelope))

    def _events(self, piece: Piece) -> Iterator[bytes]:
        yield from self._beginning()
        if piece.usage is not None:
            self._usage = piece.usage
        if piece.reasoning:
            yield from self._in_block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": piece.reasoning})
        if text := piece.text or piece.refusal:
            yield from self._in_block("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": text})
        for tool in piece.tools:
            yield from self._tool_piece(tool)
        if piece.finish:
            self._last = piece

    def _beginning(self) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield event_bytes("message_start", {"message": empty_message(self._model)})
            yield event_bytes("ping", {})

    def _tool_piece(self, tool: ToolPiece) -> Iterator[bytes]:
        if tool.place != self._tool:
            yield from self._close()
            self._tool = tool.place
        yield from self._in_block("tool", {"type": "tool_use", "id": tool.id, "name": tool.name, "input": {}})
        if tool.arguments:
            yield self._delta({"type": "input_json_delta", "partial_json": tool.arguments})

    def _in_block(self, kind: str, start: dict[str, Any]) -> Iterator[bytes]:
        """Begin a block, unless one of this ``kind`` is open."""
        if self._open != kind:
            yield from self._close()
            self._open = kind
            yield event_bytes("content_block_start", {"index": self._blocks, "content_block": start})

    def _close(self) -> Iterator[bytes]:
        if self._open:
            self._open = ""
            yield event_bytes("content_block_stop", {"index": self._blocks})
            self._blocks += 1

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return event_bytes("content_block_delta", {"index": self._blocks, "delta": delta})
