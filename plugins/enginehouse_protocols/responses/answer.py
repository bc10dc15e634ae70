"""A chat's answer as a response: its events, which is also how a whole one is made."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec

from enginehouse_kit.protocols import Envelope
from enginehouse_protocols.chats import ChatTranslation, new_id
from enginehouse_protocols.engine_chat import EngineChat
from enginehouse_protocols.fields import event_bytes
from enginehouse_protocols.responses.request import ResponsesBody, TextFormat, text_of
from enginehouse_protocols.said import Block, Blocks, BlockWriter, Call, Refusal, Thinking, Usage

_Event = tuple[str, dict[str, Any]]


class ResponseTranslation(ChatTranslation, BlockWriter):
    """A response, asked for as a chat of these ``fields``. ``keep`` gets it once it is whole.

    Its output consists of items, one after the other: reasoning, a message, calls. A message has parts: text after a
    refusal is another part of the same message. ``custom``: the names of tools that take a text.
    """

    def __init__(
        self,
        body: ResponsesBody,
        fields: dict[str, Any],
        keep: Callable[[dict[str, Any]], None] | None = None,
        custom: Collection[str] = (),
    ) -> None:
        super().__init__(fields)
        self._keep = keep
        self._custom = custom
        self._response = response_object(body, stored=keep is not None)
        self._output: list[dict[str, Any]] = []
        self._item: _Item | None = None
        self._number = 0
        self._chat = EngineChat()
        self._blocks = Blocks(keeps_text=True)

    def answer(self, answer: dict[str, Any]) -> bytes:
        self._blocks.take(self._chat.read_whole(answer), self, [])
        self._closing()
        return msgspec.json.encode(self._ended())

    def event(self, event: dict[str, Any]) -> bytes:
        out = [] if self._number else [*self._beginning()]
        self._blocks.take(self._chat.read(event), self, out)
        return b"".join(out)

    def end(self) -> bytes:
        self._chat.check()
        events = [*self._beginning(), *self._closing()]
        response = self._ended()
        return b"".join([*events, self._event(f"response.{response['status']}", {"response": response})])

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        """Both forms of the end: Codex knows only ``response.failed``, and ``error`` makes OpenAI's SDK raise.

        The SDK knows no end of a response that was not created.
        """
        begun, error = [*self._beginning()], envelope["error"]
        fields = {name: error.get(name) for name in ("code", "message", "param")}
        usual = "server_error" if status >= 500 else "invalid_prompt"
        failed = {
            "code": fields["code"] if isinstance(fields["code"], str) else usual,
            "message": fields["message"],
        }
        response = self._response | {"status": "failed", "error": failed, "output": list(self._output)}
        failed_event = self._event("response.failed", {"response": response})
        return b"".join([*begun, failed_event, self._event("error", {**fields, "error": error})])

    def _ended(self) -> dict[str, Any]:
        blocks = self._blocks
        response = ended(self._response, self._output, blocks.finish.reason, blocks.usage)
        if self._keep is not None:
            self._keep(response)
        return response

    def _beginning(self) -> Iterator[bytes]:
        if not self._number:
            yield self._event("response.created", {"response": self._response})
            yield self._event("response.in_progress", {"response": self._response})

    def _closing(self) -> list[bytes]:
        out: list[bytes] = []
        self._blocks.end(self, out)
        out.append(self._close("incomplete" if why_cut(self._blocks.finish.reason) else "completed"))
        return out

    # --- blocks

    def begin_block(self, block: Block) -> bytes:
        item = self._item
        if isinstance(item, _Message) and block.call is None and block.kind is not Thinking:
            return self._placed(item.next_part(block))
        closed = self._close("completed")
        self._item = item = self._item_of(block)
        return closed + self._placed(item.beginning(block))

    def add_to_block(self, block: Block, text: str) -> bytes:
        item = self._item
        assert item is not None
        if not item.delta:
            return b""
        number = self._number
        self._number += 1
        return item.delta % (number, len(self._output), _encode(text))

    def end_block(self, block: Block) -> bytes:
        assert self._item is not None
        return self._placed(self._item.ending(block))

    def _item_of(self, block: Block) -> _Item:
        if (call := block.call) is not None:
            return _CustomCall(call) if call.name in self._custom else _Call(call)
        return _Reasoning() if block.kind is Thinking else _Message()

    def _close(self, status: str) -> bytes:
        item, self._item = self._item, None
        if item is None:
            return b""
        whole = item.whole(status)
        event = self._event("response.output_item.done", {"output_index": len(self._output), "item": whole})
        self._output.append(whole)
        return event

    def _placed(self, events: Iterator[_Event]) -> bytes:
        place = len(self._output)
        return b"".join([self._event(type, {"output_index": place, **fields}) for type, fields in events])

    def _event(self, type: str, fields: dict[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        return event_bytes(type, {"sequence_number": number, **fields})


_encode = msgspec.json.Encoder().encode


def _delta(type: str, item: str, part: int | None, more: str = "") -> bytes:
    """The event that adds to an item, around its number, the item's place and the text.

    Nearly all events of a stream are such ones, and this is faster than to encode each as a whole.
    """
    place = "" if part is None else f',"content_index":{part}'
    fields = f'"sequence_number":%d,"output_index":%d,"item_id":"{item}"{place},"delta":%s{more}'
    return f'event: {type}\ndata: {{"type":"{type}",{fields}}}\n\n'.encode()


class _Item(ABC):
    """The item that is being said. ``delta``: as of ``_delta``; empty if it tells nothing before it is whole."""

    prefix: str

    def __init__(self) -> None:
        self.id = new_id(self.prefix)
        self.delta = b""

    @abstractmethod
    def beginning(self, block: Block) -> Iterator[_Event]:
        """The item and its first block begin."""

    @abstractmethod
    def ending(self, block: Block) -> Iterator[_Event]:
        """The block ends."""

    @abstractmethod
    def whole(self, status: str) -> dict[str, Any]:
        """The item at its end."""


class _Reasoning(_Item):
    prefix = "rs_"

    def __init__(self) -> None:
        super().__init__()
        self._place = {"item_id": self.id, "content_index": 0}
        self._text = ""
        self.delta = _delta("response.reasoning_text.delta", self.id, 0)

    def beginning(self, block: Block) -> Iterator[_Event]:
        yield "response.output_item.added", {"item": reasoning_item(self.id, None)}

    def ending(self, block: Block) -> Iterator[_Event]:
        self._text = block.text
        yield "response.reasoning_text.done", {**self._place, "text": self._text}

    def whole(self, status: str) -> dict[str, Any]:
        return reasoning_item(self.id, self._text)


class _Message(_Item):
    prefix = "msg_"

    def __init__(self) -> None:
        super().__init__()
        self._content: list[dict[str, Any]] = []
        self._refuses = False

    def beginning(self, block: Block) -> Iterator[_Event]:
        yield "response.output_item.added", {"item": message_item(self.id, [], "in_progress")}
        yield from self.next_part(block)

    def next_part(self, block: Block) -> Iterator[_Event]:
        self._refuses = block.kind is Refusal
        if self._refuses:
            self.delta = _delta("response.refusal.delta", self.id, len(self._content))
        else:
            self.delta = _delta("response.output_text.delta", self.id, len(self._content), ',"logprobs":[]')
        yield "response.content_part.added", {**self._place(), "part": self._part("")}

    def ending(self, block: Block) -> Iterator[_Event]:
        text, place = block.text, self._place()
        if self._refuses:
            yield "response.refusal.done", {**place, "refusal": text}
        else:
            yield "response.output_text.done", {**place, "text": text, "logprobs": []}
        part = self._part(text)
        self._content.append(part)
        yield "response.content_part.done", {**place, "part": part}

    def whole(self, status: str) -> dict[str, Any]:
        return message_item(self.id, self._content, status)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "content_index": len(self._content)}

    def _part(self, text: str) -> dict[str, Any]:
        return refusal_content(text) if self._refuses else text_content(text)


class _Call(_Item):
    prefix = "fc_"

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._place = {"item_id": self.id}
        self.delta = _delta("response.function_call_arguments.delta", self.id, None)

    def beginning(self, block: Block) -> Iterator[_Event]:
        yield "response.output_item.added", {"item": call_item(self.id, self._call, "", "in_progress")}

    def ending(self, block: Block) -> Iterator[_Event]:
        arguments = self._call.arguments
        if not arguments.strip():
            yield "response.function_call_arguments.delta", {**self._place, "delta": "{}"}
        fields = {"name": self._call.name, "arguments": self._arguments}
        yield "response.function_call_arguments.done", {**self._place, **fields}

    def whole(self, status: str) -> dict[str, Any]:
        return call_item(self.id, self._call, self._arguments, status)

    @property
    def _arguments(self) -> str:
        arguments = self._call.arguments
        return arguments if arguments.strip() else "{}"


class _CustomCall(_Item):
    """A call whose text is known once its arguments are whole."""

    prefix = "ctc_"

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._place = {"item_id": self.id}

    def beginning(self, block: Block) -> Iterator[_Event]:
        yield "response.output_item.added", {"item": custom_call_item(self.id, self._call, "", "in_progress")}

    def ending(self, block: Block) -> Iterator[_Event]:
        text = text_of(self._call.arguments)
        yield "response.custom_tool_call_input.delta", {**self._place, "delta": text}
        yield "response.custom_tool_call_input.done", {**self._place, "input": text}

    def whole(self, status: str) -> dict[str, Any]:
        return custom_call_item(self.id, self._call, text_of(self._call.arguments), status)


def response_object(body: ResponsesBody, *, stored: bool) -> dict[str, Any]:
    """A response that has not begun, with what the client asked for. ``stored``: it will be kept."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": body.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": stored,
        "temperature": body.temperature,
        "text": {"format": _format(body.text.format if body.text else None)},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools_as_sent,
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def _format(format: TextFormat | None) -> Any:
    if format is None or format.type != "json_schema":
        return {"type": format.type if format else "text"}
    return msgspec.to_builtins(format)


def ended(response: dict[str, Any], output: Sequence[dict[str, Any]], finish: str, usage: Usage) -> dict[str, Any]:
    """``response`` at its end: completed, or incomplete for want of tokens."""
    cut = why_cut(finish)
    return response | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": list(output),
        "usage": usage_object(usage),
    }


def why_cut(finish: str) -> str | None:
    """Why a response is incomplete; ``None`` if it is not."""
    return {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.output,
    }


def reasoning_item(id: str, text: str | None) -> dict[str, Any]:
    """What the model thought; ``None`` if it has not begun."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": id, "type": "reasoning", "summary": [], "content": content}


def message_item(id: str, content: Sequence[dict[str, Any]], status: str) -> dict[str, Any]:
    """What the model said."""
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": list(content)}


def text_content(text: str) -> dict[str, Any]:
    """A part of a message that is text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_content(text: str) -> dict[str, Any]:
    """A part of a message that is a refusal."""
    return {"type": "refusal", "refusal": text}


def call_item(id: str, call: Call, arguments: str, status: str) -> dict[str, Any]:
    """A call of a function."""
    of = {"call_id": call.id, "name": call.name, "arguments": arguments}
    return {"id": id, "type": "function_call", "status": status, **of}


def custom_call_item(id: str, call: Call, text: str, status: str) -> dict[str, Any]:
    """A call of a tool that takes a text."""
    return {
        "id": id,
        "type": "custom_tool_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "input": text,
    }
