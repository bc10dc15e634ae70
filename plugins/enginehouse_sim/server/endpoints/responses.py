"""``POST /v1/responses``: one message of text."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from enginehouse_sim.server.call import Call
from enginehouse_sim.server.engine import Work
from enginehouse_sim.server.generation import Answer
from enginehouse_sim.server.openai_parts import Positive, new_id
from enginehouse_sim.server.prompts import Message, render_chat
from enginehouse_sim.server.simulation import Simulation


class ResponseBody(msgspec.Struct):
    """What is read of the request."""

    model: str
    input: str | list[Message]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    stream: bool | None = None


async def responses(simulation: Simulation, call: Call) -> None:
    """Answer an input."""
    body = call.decode(ResponseBody)
    messages = [Message(content=body.input)] if isinstance(body.input, str) else body.input
    if body.instructions:
        messages = [Message(role="system", content=body.instructions), *messages]
    work = simulation.work(body.model, [render_chat(messages)], body.max_output_tokens)
    response = _Response(body, work)
    if body.stream:
        await _stream(simulation, call, response)
        return
    [answer], tokens = await simulation.generator.answers(work)
    await call.json(response.ended(answer, tokens))


async def _stream(simulation: Simulation, call: Call, response: _Response) -> None:
    events = _Events(call)
    answer = Answer()
    tokens = 0
    place = {"item_id": response.item_id, "output_index": 0, "content_index": 0}
    await call.open_stream()
    await events.send("response.created", response=response.begun())
    await events.send("response.in_progress", response=response.begun())
    await events.send("response.output_item.added", output_index=0, item=response.item("in_progress", []))
    await events.send("response.content_part.added", **place, part=_text(""))
    async with aclosing(simulation.generator.pieces(response.work)) as pieces:
        async for piece in pieces:
            tokens += 1
            answer.text += piece.text
            answer.finish = piece.finish
            await events.send("response.output_text.delta", **place, delta=piece.text, logprobs=[])
    ended = response.ended(answer, tokens)
    await events.send("response.output_text.done", **place, text=answer.text, logprobs=[])
    await events.send("response.content_part.done", **place, part=_text(answer.text))
    await events.send("response.output_item.done", output_index=0, item=ended["output"][0])
    await events.send(f"response.{ended['status']}", response=ended)
    await call.close_stream()


class _Events:
    """Numbers the events of one stream."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._number = 0

    async def send(self, type: str, **fields: Any) -> None:
        await self._call.event({"type": type, "sequence_number": self._number, **fields}, type)
        self._number += 1


class _Response:
    """The response object, as it begins and as it ends."""

    def __init__(self, body: ResponseBody, work: Work) -> None:
        self.work = work
        self.item_id = new_id("msg")
        self._limited = body.max_output_tokens is not None
        self._head = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": body.model,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "error": None,
        }

    def begun(self) -> dict[str, Any]:
        return {**self._head, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}

    def ended(self, answer: Answer, tokens: int) -> dict[str, Any]:
        cut = self._limited and answer.finish == "length"
        status = "incomplete" if cut else "completed"
        return {
            **self._head,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self.item(status, [_text(answer.text)])],
            "usage": {
                "input_tokens": self.work.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.work.prompt_tokens + tokens,
            },
        }

    def item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
