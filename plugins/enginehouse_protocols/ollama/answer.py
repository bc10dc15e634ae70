"""Answers of chats and completions as Ollama gives them, whole or in lines."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import datetime, timezone
from typing import Any, ClassVar

import msgspec

from enginehouse import Envelope, Translation
from enginehouse_protocols.chats import Piece, ToolPiece, Usage, read_piece
from enginehouse_protocols.fields import parsed

_REASONS = {"length": "length"}


class OllamaAnswer(Translation):
    """The way back of a chat or a prompt for ``model``. ``loads``: the client only wants the model loaded."""

    stream_type: ClassVar[bytes] = b"application/x-ndjson"

    def __init__(
        self, model: str, path: str, body: bytes, keep_alive: float | None = None, *, loads: bool = False
    ) -> None:
        self.path = path
        self.body = body
        self.keep_alive = keep_alive
        self._model = model
        self._loads = loads
        self._began = time.monotonic_ns()
        self._first = 0
        self._finish = ""
        self._usage = Usage()
        self._tools: dict[int, ToolPiece] = {}

    def answer(self, answer: dict[str, Any]) -> bytes:
        piece = read_piece(answer)
        self._note(piece)
        if self._loads:
            reason = "unload" if self.keep_alive == 0 else "load"
            return self._line(self._said(Piece()) | {"done": True, "done_reason": reason})
        return self._line(self._said(piece, [*piece.tools]) | self._done())

    def event(self, event: dict[str, Any]) -> bytes:
        piece = read_piece(event)
        self._note(piece)
        for tool in piece.tools:  # Ollama tells a call when it is whole
            before = self._tools.get(tool.place, ToolPiece(tool.place, "", "", ""))
            arguments = before.arguments + tool.arguments
            self._tools[tool.place] = ToolPiece(tool.place, tool.id or before.id, tool.name or before.name, arguments)
        if not (piece.text or piece.reasoning):
            return b""
        return self._line(self._said(piece) | {"done": False})

    def end(self) -> bytes:
        calls = b""
        if self._tools:
            calls = self._line(self._said(Piece(), [*self._tools.values()]) | {"done": False})
        return calls + self._line(self._said(Piece()) | self._done())

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode({"error": envelope["error"].get("message", "")}) + b"\n"

    @abstractmethod
    def _said(self, piece: Piece, tools: list[ToolPiece] | None = None) -> dict[str, Any]:
        """The fields with what the model says."""

    def _note(self, piece: Piece) -> None:
        self._first = self._first or time.monotonic_ns()
        self._finish = piece.finish or self._finish
        self._usage = piece.usage or self._usage

    def _done(self) -> dict[str, Any]:
        """The fields of the end. Durations are in nanoseconds, as the gateway sees them."""
        now = time.monotonic_ns()
        return {
            "done": True,
            "done_reason": _REASONS.get(self._finish, "stop"),
            "total_duration": now - self._began,
            "load_duration": 0,
            "prompt_eval_count": self._usage.prompt,
            "prompt_eval_duration": self._first - self._began,
            "eval_count": self._usage.output,
            "eval_duration": now - self._first,
        }

    def _line(self, fields: dict[str, Any]) -> bytes:
        created = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        return msgspec.json.encode({"model": self._model, "created_at": created, **fields}) + b"\n"


class ChatAnswer(OllamaAnswer):
    """The answer of ``/api/chat``."""

    def _said(self, piece: Piece, tools: list[ToolPiece] | None = None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": piece.text or piece.refusal}
        if piece.reasoning:
            message["thinking"] = piece.reasoning
        if tools:
            message["tool_calls"] = [
                {
                    "id": tool.id,
                    "function": {"index": tool.place, "name": tool.name, "arguments": parsed(tool.arguments)},
                }
                for tool in tools
            ]
        return {"message": message}


class GenerateAnswer(OllamaAnswer):
    """The answer of ``/api/generate``."""

    def _said(self, piece: Piece, tools: list[ToolPiece] | None = None) -> dict[str, Any]:
        said = {"response": piece.text or piece.refusal}
        return said | {"thinking": piece.reasoning} if piece.reasoning else said
