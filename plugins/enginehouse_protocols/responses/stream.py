"""A chat's events as those of a response, which is also how a whole answer is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from enginehouse import Envelope, Translation
from enginehouse_protocols.chats import CHATS, Piece, ToolPiece, Usage, chat_body, new_id, read_piece
from enginehouse_protocols.fields import event_bytes
from enginehouse_protocols.responses.answer import (
    call_item,
    ended,
    message_item,
    reasoning_item,
    response_object,
    text_content,
)
from enginehouse_protocols.responses.request import ResponsesBody


class ResponseTranslation(Translation):
    """A response, asked for as a chat of these ``fields``. ``keep`` gets it once it is whole.

    Its output consists of items, one after the other: reasoning, a message, calls of functions. A new kind of piece, or
    another call, ends the open item and begins the next.
    """

    path = CHATS

    def __init__(
        self, body: ResponsesBody, fields: dict[str, Any], keep: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.body = chat_body(fields)
        self._keep = keep
        self._response = response_object(body, stored=keep is not None)
        self._output: list[dict[str, Any]] = []
        self._item: _Item | None = None
        self._number = 0
        self._finish = ""
        self._usage = Usage()

    def answer(self, answer: dict[str, Any]) -> bytes:
        for _ in self._pieces(read_piece(answer)):
            pass
        for _ in self._close():
            pass
        return msgspec.json.encode(self._ended())

    def event(self, event: dict[str, Any]) -> bytes:
        return b"".join([*self._beginning(), *self._pieces(read_piece(event))])

    def end(self) -> bytes:
        events = [*self._beginning(), *self._close()]
        response = self._ended()
        return b"".join([*events, self._event(f"response.{response['status']}", {"response": response})])

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        error = envelope["error"]
        fields = {name: error.get(name) for name in ("code", "message", "param")}
        return self._event("error", {**fields, "error": error})

    def _ended(self) -> dict[str, Any]:
        response = ended(self._response, self._output, self._finish, self._usage)
        if self._keep is not None:
            self._keep(response)
        return response

    def _beginning(self) -> Iterator[bytes]:
        if not self._number:
            yield self._event("response.created", {"response": self._response})
            yield self._event("response.in_progress", {"response": self._response})

    def _pieces(self, piece: Piece) -> Iterator[bytes]:
        self._usage = piece.usage or self._usage
        self._finish = piece.finish or self._finish
        if piece.reasoning:
            yield from self._said(_Reasoning, piece.reasoning)
        if text := piece.text or piece.refusal:
            yield from self._said(_Message, text)
        for tool in piece.tools:
            if not (isinstance(self._item, _Call) and self._item.call_place == tool.place):
                yield from self._open(_Call(tool))
            yield from self._add(tool.arguments)

    def _said(self, kind: type[_Reasoning] | type[_Message], text: str) -> Iterator[bytes]:
        if not isinstance(self._item, kind):
            yield from self._open(kind())
        yield from self._add(text)

    def _open(self, item: _Item) -> Iterator[bytes]:
        yield from self._close()
        self._item = item
        yield from map(self._placed, item.beginning())

    def _add(self, text: str) -> Iterator[bytes]:
        if self._item is not None and text:
            self._item.text += text
            yield self._placed((f"{self._item.delta}.delta", {**self._item.place, "delta": text}))

    def _close(self) -> Iterator[bytes]:
        item, self._item = self._item, None
        if item is not None:
            yield from map(self._placed, item.ending())
            self._output.append(item.whole())

    def _placed(self, event: tuple[str, dict[str, Any]]) -> bytes:
        type, fields = event
        return self._event(type, {"output_index": len(self._output), **fields})

    def _event(self, type: str, fields: dict[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        return event_bytes(type, {"sequence_number": number, **fields})


_Event = tuple[str, dict[str, Any]]


class _Item(ABC):
    """The item that is being said. ``delta``: the beginning of its events' types. ``place``: what they have besides."""

    delta: str
    prefix: str

    def __init__(self) -> None:
        self.id = new_id(self.prefix)
        self.text = ""
        self.place: dict[str, Any] = {"item_id": self.id, "content_index": 0}

    def beginning(self) -> Iterator[_Event]:
        yield "response.output_item.added", {"item": self.empty()}

    def ending(self) -> Iterator[_Event]:
        yield f"{self.delta}.done", {**self.place, "text": self.text}
        yield "response.output_item.done", {"item": self.whole()}

    @abstractmethod
    def empty(self) -> dict[str, Any]:
        """The item at its beginning."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The item at its end."""


class _Reasoning(_Item):
    delta = "response.reasoning_text"
    prefix = "rs_"

    def empty(self) -> dict[str, Any]:
        return {**self.whole(), "content": []}

    def whole(self) -> dict[str, Any]:
        return reasoning_item(self.id, self.text)


class _Message(_Item):
    delta = "response.output_text"
    prefix = "msg_"

    def beginning(self) -> Iterator[_Event]:
        yield from super().beginning()
        yield "response.content_part.added", {**self.place, "part": text_content("")}

    def ending(self) -> Iterator[_Event]:
        yield f"{self.delta}.done", {**self.place, "text": self.text, "logprobs": []}
        yield "response.content_part.done", {**self.place, "part": text_content(self.text)}
        yield "response.output_item.done", {"item": self.whole()}

    def empty(self) -> dict[str, Any]:
        return message_item(self.id, "", "in_progress")

    def whole(self) -> dict[str, Any]:
        return message_item(self.id, self.text)


class _Call(_Item):
    delta = "response.function_call_arguments"
    prefix = "fc_"

    def __init__(self, tool: ToolPiece) -> None:
        super().__init__()
        self.call_place = tool.place
        self._call_id = tool.id
        self._name = tool.name
        self.place = {"item_id": self.id}

    def ending(self) -> Iterator[_Event]:
        yield f"{self.delta}.done", {**self.place, "name": self._name, "arguments": self.text}
        yield "response.output_item.done", {"item": self.whole()}

    def empty(self) -> dict[str, Any]:
        return call_item(self.id, self._call_id, self._name, "", "in_progress")

    def whole(self) -> dict[str, Any]:
        return call_item(self.id, self._call_id, self._name, self.text)
