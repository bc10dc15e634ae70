"""The stream of an engine that speaks the protocol itself.

Its events: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from enginehouse_kit.protocols import ChatPiece, TypedAnswer
from enginehouse_protocols.engine_chat import read_usage
from enginehouse_protocols.fields import event_bytes, number
from enginehouse_protocols.responses.answer import text_content, usage_object

_STATES: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_NOTHING: Final = ChatPiece()
_CALLED: Final = ChatPiece(other="a tool call")
_THOUGHT: Final = ChatPiece(other="reasoning")


class ResponseEvents(TypedAnswer):
    """A response that is one message with one text."""

    def __init__(self) -> None:
        self._number = 0
        self._response: dict[str, Any] = {}
        self._place = 0
        self._message = ""
        self._told: set[str] = set()

    def read(self, event: dict[str, Any]) -> ChatPiece | None:
        kind: str = event["type"]
        self._number = (number(event, "sequence_number") or 0) + 1
        if kind in _STATES:
            self.is_begun = True
            self._response = event["response"]
            self._told.add(kind)
            return _NOTHING
        if kind in _ENDS:
            return None
        self._check_order(kind)
        self._told.add(kind)
        if kind == "response.output_item.added":
            return self._added(event)
        if kind == "response.content_part.added":
            return _NOTHING if event["part"]["type"] == "output_text" else _THOUGHT
        if kind == "response.output_text.delta":
            return ChatPiece(event["delta"])
        if kind == "response.output_text.done":
            return ChatPiece(finish="stop")
        if kind == "response.output_item.done":
            return ChatPiece(finish="length" if event["item"].get("status") == "incomplete" else "stop")
        if kind == "response.content_part.done":
            return _NOTHING
        return _CALLED if "call" in kind else _THOUGHT

    def _check_order(self, kind: str) -> None:
        """Raises ``ValueError`` for a second text: which one a continuation belongs to would be unknown."""
        ended = "response.output_text.done" in self._told
        if (kind.endswith(".added") and kind in self._told) or (ended and not kind.endswith(".done")):
            raise ValueError(kind)

    def _added(self, event: dict[str, Any]) -> ChatPiece:
        item = event["item"]
        if item["type"] != "message":
            return _THOUGHT if item["type"] == "reasoning" else _CALLED
        self._place, self._message = event["output_index"], item["id"]
        return _NOTHING

    def text(self, text: str) -> bytes:
        before = [*self._begun(), *self._opened()]  # first: events are numbered
        return b"".join([*before, self._event("output_text.delta", **self._part(), delta=text, logprobs=[])])

    def _begun(self) -> Iterator[bytes]:
        if "response.in_progress" not in self._told:
            yield self._event("in_progress", response=self._response)

    def _opened(self) -> Iterator[bytes]:
        """What comes before a text, as far as it has not passed."""
        self._message = self._message or f"msg_{self._response.get('id', '').removeprefix('resp_')}"
        if "response.output_item.added" not in self._told:
            yield self._event("output_item.added", output_index=self._place, item=self._item("in_progress", []))
        if "response.content_part.added" not in self._told:
            yield self._event("content_part.added", **self._part(), part=text_content(""))

    def end(self, text: str | None, finish: str, stopped_at: str | None, usage: Mapping[str, Any]) -> bytes | None:
        if text is None:
            return None
        told, cut = bool(self._message), finish == "length"
        item = self._item("incomplete" if cut else "completed", [text_content(text)])
        events = [*self._begun(), *(self._closed(text, item) if told else ())]
        response = {
            **self._response,
            "status": item["status"],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [item] if told else [],
            "usage": usage_object(read_usage(usage)),
        }
        return b"".join([*events, self._event(item["status"], response=response)])

    def _closed(self, text: str, item: dict[str, Any]) -> Iterator[bytes]:
        """What comes behind ``text`` of ``item``, as far as it has not passed."""
        yield from self._opened()
        if "response.output_text.done" not in self._told:
            yield self._event("output_text.done", **self._part(), text=text, logprobs=[])
        if "response.content_part.done" not in self._told:
            yield self._event("content_part.done", **self._part(), part=text_content(text))
        if "response.output_item.done" not in self._told:
            yield self._event("output_item.done", output_index=self._place, item=item)

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._message, "output_index": self._place, "content_index": 0}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._message, "type": "message", "status": status, "role": "assistant", "content": content}

    def _event(self, kind: str, **fields: Any) -> bytes:
        type, place = f"response.{kind}", self._number
        self._number += 1
        self._told.add(type)
        return event_bytes(type, {"sequence_number": place, **fields})
