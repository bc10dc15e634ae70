"""``POST /v1/completions``."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from enginehouse_sim.server.call import Call
from enginehouse_sim.server.engine import Work
from enginehouse_sim.server.openai_parts import Choices, Positive, Stop, StreamOptions, new_id, stop_strings, usage
from enginehouse_sim.server.prompts import Prompt, texts_of
from enginehouse_sim.server.simulation import Simulation


class CompletionBody(msgspec.Struct):
    """What is read of the request."""

    model: str
    prompt: Prompt
    max_tokens: Positive | None = None
    n: Choices = 1
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


async def completions(simulation: Simulation, call: Call) -> None:
    """Continue one or more texts."""
    body = call.decode(CompletionBody)
    work = simulation.work(body.model, texts_of(body.prompt), body.max_tokens, body.n)
    head = {"id": new_id("cmpl"), "object": "text_completion", "created": int(time.time()), "model": body.model}
    if body.stream:
        await _stream(simulation, call, body, work, head)
        return
    answers, tokens = await simulation.generator.answers(work, stop_strings(body.stop))
    choices = [_choice(index, answer.text, answer.finish) for index, answer in enumerate(answers)]
    await call.json({**head, "choices": choices, "usage": usage(work.prompt_tokens, tokens)})


async def _stream(simulation: Simulation, call: Call, body: CompletionBody, work: Work, head: dict[str, Any]) -> None:
    tokens = 0
    await call.open_stream()
    async with aclosing(simulation.generator.pieces(work, stop_strings(body.stop))) as pieces:
        async for piece in pieces:
            tokens += 1
            if piece.text or piece.finish:
                await call.event({**head, "choices": [_choice(piece.choice, piece.text, piece.finish)]})
    if body.stream_options and body.stream_options.include_usage:
        await call.event({**head, "choices": [], "usage": usage(work.prompt_tokens, tokens)})
    await call.close_stream(b"data: [DONE]\n\n")


def _choice(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
