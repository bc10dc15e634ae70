"""Answers of chats and completions as Ollama gives them, whole or in lines."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, ClassVar

import msgspec

from enginehouse_kit.protocols import Envelope
from enginehouse_protocols.chats import CHATS, ChatTranslation
from enginehouse_protocols.engine_chat import EngineChat
from enginehouse_protocols.fields import parsed
from enginehouse_protocols.said import Block, Blocks, BlockWriter, Call, Thinking, whole


class OllamaAnswer(ChatTranslation, BlockWriter):
    """A chat of these ``fields``, or a prompt, for ``model``. ``loads``: the client only wants the model loaded."""

    stream_type: ClassVar[bytes] = b"application/x-ndjson"

    def __init__(
        self,
        model: str,
        fields: dict[str, Any],
        keep_alive: float | None = None,
        *,
        path: str = CHATS,
        loads: bool = False,
    ) -> None:
        super().__init__(fields)
        self.path = path
        self.keep_alive = keep_alive
        self._model = model
        self.loads = loads
        self._began = time.monotonic_ns()
        self._first = 0
        self._chat = EngineChat()
        self._blocks = Blocks(keeps_text=False)

    def answer(self, answer: dict[str, Any]) -> bytes:
        if self.loads:
            reason = "unload" if self.keep_alive == 0 else "load"
            return self._line(self._said("") | {"done": True, "done_reason": reason})
        self._first = time.monotonic_ns()
        blocks = whole(self._chat.read_whole(answer))
        text = "".join(block.text for block in blocks.all if block.call is None and block.kind is not Thinking)
        thinking = "".join(block.text for block in blocks.all if block.kind is Thinking)
        calls = [block.call for block in blocks.all if block.call is not None]
        return self._line(self._said(text, thinking, calls) | self._done(blocks))

    def event(self, event: dict[str, Any]) -> bytes:
        self._first = self._first or time.monotonic_ns()
        out: list[bytes] = []
        self._blocks.take(self._chat.read(event), self, out)
        return b"".join(out)

    def ping(self) -> bytes:
        return self._line(self._said("") | {"done": False})

    def end(self) -> bytes:
        self._chat.check()
        out: list[bytes] = []
        self._blocks.end(self, out)
        return b"".join([*out, self._line(self._said("") | self._done(self._blocks))])

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode({"error": envelope["error"].get("message", "")}) + b"\n"

    # --- blocks

    def add_to_block(self, block: Block, text: str) -> bytes:
        if block.call is not None:  # Ollama tells a call when it is whole
            return b""
        said = self._said("", text) if block.kind is Thinking else self._said(text)
        return self._line(said | {"done": False})

    def end_block(self, block: Block) -> bytes:
        if block.call is None:
            return b""
        said = self._said("", calls=[block.call], first=sum(each.call is not None for each in self._blocks.all) - 1)
        return self._line(said | {"done": False})

    @abstractmethod
    def _said(self, text: str, thinking: str = "", calls: Sequence[Call] = (), first: int = 0) -> dict[str, Any]:
        """The fields with what the model says. ``first``: the place of the first of the calls."""

    def _done(self, blocks: Blocks) -> dict[str, Any]:
        """The fields of the end. Durations are in nanoseconds, as the gateway sees them."""
        now = time.monotonic_ns()
        first = self._first or now
        return {
            "done": True,
            "done_reason": "length" if blocks.finish.reason == "length" else "stop",
            "total_duration": now - self._began,
            "load_duration": 0,
            "prompt_eval_count": blocks.usage.prompt,
            "prompt_eval_duration": first - self._began,
            "eval_count": blocks.usage.output,
            "eval_duration": now - first,
        }

    def _line(self, fields: dict[str, Any]) -> bytes:
        created = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        return msgspec.json.encode({"model": self._model, "created_at": created, **fields}) + b"\n"


class ChatAnswer(OllamaAnswer):
    """The answer of ``/api/chat``."""

    def _said(self, text: str, thinking: str = "", calls: Sequence[Call] = (), first: int = 0) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = [_call(call, first + number) for number, call in enumerate(calls)]
        return {"message": message}


class GenerateAnswer(OllamaAnswer):
    """The answer of ``/api/generate``, which has no tools."""

    def _said(self, text: str, thinking: str = "", calls: Sequence[Call] = (), first: int = 0) -> dict[str, Any]:
        return {"response": text, "thinking": thinking} if thinking else {"response": text}


def _call(call: Call, place: int) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": place, "name": call.name, "arguments": parsed(call.arguments)}}
