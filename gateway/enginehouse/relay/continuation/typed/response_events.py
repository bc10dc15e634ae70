"""The events of OpenAI's Responses: https://platform.openai.com/docs/api-reference/responses-streaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enginehouse.relay.continuation.chunks import StreamChunk
from enginehouse.relay.continuation.progress import AnswerDiffers
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

_STATES = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset({"response.completed", "response.incomplete"})


class ResponseEvents(TypedAnswer):
    """A response that is one message with one text."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._response: dict[str, Any] = {}
        self._place = 0
        self._message = ""
        self._told: set[str] = set()

    def read(self, event: dict[str, Any]) -> StreamChunk | None:
        kind: str = event["type"]
        self._number = (number(event, "sequence_number") or 0) + 1
        if kind in _STATES:
            self.is_begun = True
            self._response = event["response"]
            self._told.add(kind)
            return NOTHING
        if kind in _ENDS:
            return None
        self._check_order(kind)
        self._told.add(kind)
        if kind == "response.output_item.added":
            return self._added(event)
        if kind == "response.content_part.added":
            return NOTHING if event["part"]["type"] == "output_text" else thought()
        if kind == "response.output_text.delta":
            return said(event["delta"])
        if kind == "response.output_text.done":
            return finished("stop")
        if kind == "response.output_item.done":
            return finished("length" if event["item"].get("status") == "incomplete" else "stop")
        if kind == "response.content_part.done":
            return NOTHING
        return called() if "call" in kind else thought()

    def _check_order(self, kind: str) -> None:
        """Raises ``ValueError`` for a second text: which one a continuation belongs to would be unknown."""
        ended = "response.output_text.done" in self._told
        if (kind.endswith(".added") and kind in self._told) or (ended and not kind.endswith(".done")):
            raise ValueError(kind)

    def _added(self, event: dict[str, Any]) -> StreamChunk:
        item = event["item"]
        if item["type"] != "message":
            return thought() if item["type"] == "reasoning" else called()
        self._place, self._message = event["output_index"], item["id"]
        return NOTHING

    def _piece(self, text: str) -> bytes:
        events = [
            *self._begun(),
            *self._opened(),
            self._event("output_text.delta", **self._part(), delta=text, logprobs=[]),
        ]
        return b"".join(events)

    def _begun(self) -> Iterator[bytes]:
        if "response.in_progress" not in self._told:
            yield self._event("in_progress", response=self._response)

    def _opened(self) -> Iterator[bytes]:
        """What comes before a text, as far as it has not passed."""
        self._message = self._message or f"msg_{self._response.get('id', '').removeprefix('resp_')}"
        if "response.output_item.added" not in self._told:
            yield self._event("output_item.added", output_index=self._place, item=self._item("in_progress", []))
        if "response.content_part.added" not in self._told:
            yield self._event("content_part.added", **self._part(), part=_text(""))

    def done(self, text: str | None) -> bytes:
        told = bool(self._message)
        if text is None:
            raise AnswerDiffers
        cut = self._finish == "length"
        item = self._item("incomplete" if cut else "completed", [_text(text)])
        events = [*self._begun(), *(self._closed(text, item) if told else ())]
        response = {
            **self._response,
            "status": item["status"],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [item] if told else [],
            "usage": self._used(),
        }
        return b"".join([*events, self._event(item["status"], response=response)])

    def _closed(self, text: str, item: dict[str, Any]) -> Iterator[bytes]:
        """What comes behind ``text`` of ``item``, as far as it has not passed."""
        yield from self._opened()
        if "response.output_text.done" not in self._told:
            yield self._event("output_text.done", **self._part(), text=text, logprobs=[])
        if "response.content_part.done" not in self._told:
            yield self._event("content_part.done", **self._part(), part=_text(text))
        if "response.output_item.done" not in self._told:
            yield self._event("output_item.done", output_index=self._place, item=item)

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._message, "output_index": self._place, "content_index": 0}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._message, "type": "message", "status": status, "role": "assistant", "content": content}

    def _used(self) -> dict[str, Any]:
        prompt = number(self._usage, "prompt_tokens") or 0
        made = number(self._usage, "completion_tokens") or 0
        details = self._usage.get("prompt_tokens_details") or {}
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": number(details, "cached_tokens") or 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + made,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        type, place = f"response.{kind}", self._number
        self._number += 1
        self._told.add(type)
        return written({"type": type, "sequence_number": place, **fields})


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
