"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from enginehouse_sim.server.call import Call
from enginehouse_sim.server.engine import Work
from enginehouse_sim.server.openai_parts import Choices, Positive, Stop, StreamOptions, new_id, stop_strings, usage
from enginehouse_sim.server.prompts import Message, render_chat
from enginehouse_sim.server.simulation import Simulation


class ChatBody(msgspec.Struct):
    """What is read of the request."""

    model: str
    messages: list[Message]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    n: Choices = 1
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    continue_final_message: bool = False


async def chat(simulation: Simulation, call: Call) -> None:
    """Answer a conversation."""
    body = call.decode(ChatBody)
    prompt = render_chat(body.messages, continue_final=body.continue_final_message)
    work = simulation.work(body.model, [prompt], body.max_completion_tokens or body.max_tokens, body.n)
    head = {"id": new_id("chatcmpl"), "created": int(time.time()), "model": body.model}
    if body.stream:
        await _stream(simulation, call, body, work, {**head, "object": "chat.completion.chunk"})
        return
    answers, tokens = await simulation.generator.answers(work, stop_strings(body.stop))
    choices = [_whole(index, answer.text, answer.finish) for index, answer in enumerate(answers)]
    counted = usage(work.prompt_tokens, tokens)
    await call.json({**head, "object": "chat.completion", "choices": choices, "usage": counted})


async def _stream(simulation: Simulation, call: Call, body: ChatBody, work: Work, head: dict[str, Any]) -> None:
    tokens = 0
    greeted: set[int] = set()
    await call.open_stream()
    async with aclosing(simulation.generator.pieces(work, stop_strings(body.stop))) as pieces:
        async for piece in pieces:
            tokens += 1
            if piece.choice not in greeted:
                greeted.add(piece.choice)
                await call.event(_chunk(head, piece.choice, {"role": "assistant", "content": ""}))
            if piece.text or piece.finish:
                await call.event(_chunk(head, piece.choice, {"content": piece.text}, piece.finish))
    if body.stream_options and body.stream_options.include_usage:
        await call.event({**head, "choices": [], "usage": usage(work.prompt_tokens, tokens)})
    await call.close_stream(b"data: [DONE]\n\n")


def _chunk(head: dict[str, Any], index: int, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _whole(index: int, text: str, finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
