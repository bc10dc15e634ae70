"""``POST /v1/responses``: one message of text."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.server.endpoints.common import Positive, new_id, usage
from enginehouse_sim.simulator.server.endpoints.sampling import NotNegativeFloat, TopP
from enginehouse_sim.simulator.server.endpoints.structured import JsonSchema, ResponseFormatParam, grammar_of_format
from enginehouse_sim.simulator.server.generation.prompts import ChatMessage, chat_prompt
from enginehouse_sim.simulator.server.generation.run import Run
from enginehouse_sim.simulator.server.generation.work import Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


class TextFormat(msgspec.Struct):
    """``text.format`` of a request: the form of the answer."""

    type: str = "text"
    schema: Any = None

    @property
    def grammar(self) -> str | None:
        """The grammar of the answer. Raises ``InvalidRequest`` for an unsupported one."""
        return grammar_of_format(ResponseFormatParam(self.type, JsonSchema(self.schema)))


class TextParam(msgspec.Struct):
    """``text`` of a request."""

    format: TextFormat = msgspec.field(default_factory=TextFormat)


class ResponseBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others. ``temperature`` and ``top_p`` change nothing."""

    model: str
    input: str | list[ChatMessage]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    stream: bool | None = None
    text: TextParam = msgspec.field(default_factory=TextParam)
    temperature: NotNegativeFloat | None = None
    top_p: TopP | None = None
    previous_response_id: str | None = None


async def responses(simulation: Simulation, call: Call) -> None:
    """Answer a text or a conversation."""
    body = call.decode(ResponseBody)
    if body.previous_response_id is not None:
        raise InvalidRequest("No responses are kept: send the whole conversation in 'input'")
    messages = [ChatMessage(content=body.input)] if isinstance(body.input, str) else body.input
    if body.instructions:
        messages = [ChatMessage(role="system", content=body.instructions), *messages]
    prompts = [chat_prompt(messages)]
    lora = simulation.lora(body.model)
    grammar = body.text.format.grammar
    ends = grammar is not None or simulation.answers_end
    max_tokens = simulation.max_tokens(prompts, body.max_output_tokens, ends=ends)
    work = Work(id=new_id("resp", call), prompts=prompts, max_tokens=max_tokens, lora=lora, grammar=grammar)
    response = _Response(body, work)
    with simulation.generator.run(work, streams=bool(body.stream)) as run:
        if body.stream:
            await _stream(run, call, response)
        else:
            await run.finished()
            await call.json(response.ended(run))


async def _stream(run: Run, call: Call, response: _Response) -> None:
    events = _Events(call)
    place = {"item_id": response.item_id, "output_index": 0, "content_index": 0}
    await call.open_stream()
    await events.send("response.created", response=response.begun())
    await events.send("response.in_progress", response=response.begun())
    await events.send("response.output_item.added", output_index=0, item=response.item("in_progress", []))
    await events.send("response.content_part.added", **place, part=_text(""))
    async for piece in run.pieces():
        await events.send("response.output_text.delta", **place, delta=piece.text, logprobs=[])
    ended, text = response.ended(run), run.answers[0].text
    await events.send("response.output_text.done", **place, text=text, logprobs=[])
    await events.send("response.content_part.done", **place, part=_text(text))
    await events.send("response.output_item.done", output_index=0, item=ended["output"][0])
    await events.send(f"response.{ended['status']}", response=ended)
    await call.close_stream()


class _Events:
    """Sends the events of a stream, and numbers them."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._number = 0

    async def send(self, type: str, **fields: Any) -> None:
        await self._call.event({"type": type, "sequence_number": self._number, **fields}, type)
        self._number += 1


class _Response:
    """The response object, at its creation and at its end."""

    def __init__(self, body: ResponseBody, work: Work) -> None:
        self.item_id = f"msg-{work.id.partition('-')[2]}"
        self._limited = body.max_output_tokens is not None
        self._head = {
            "id": work.id,
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

    def ended(self, run: Run) -> dict[str, Any]:
        [answer] = run.answers
        counted = usage(run)
        cut = self._limited and answer.finish == "length"
        status = "incomplete" if cut else "completed"
        return {
            **self._head,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self.item(status, [_text(answer.text)])],
            "usage": {
                "input_tokens": counted["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": run.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": counted["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counted["total_tokens"],
            },
        }

    def item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
