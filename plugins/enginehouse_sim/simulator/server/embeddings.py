"""``POST /v1/embeddings``, and ``POST /tokenize`` as vLLM has it: requests that generate nothing."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.text import encode
from enginehouse_sim.simulator.server.bodies import Positive
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.reply import new_id
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import ChatMessage, PromptInput, Work, chat_prompt, prompts_of


class EmbeddingBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    input: PromptInput
    dimensions: Positive | None = None
    encoding_format: Literal["float", "base64"] = "float"


async def embeddings(simulation: Simulation, call: Call) -> None:
    """Answer a vector of length 1 for each text. It depends only on the seed and the text."""
    body = call.decode(EmbeddingBody)
    prompts, lora = prompts_of(body.input), simulation.lora(body.model)
    max_tokens = simulation.max_tokens(prompts, 0)
    work = Work(id=new_id("embd", call), prompts=prompts, max_tokens=max_tokens, lora=lora)
    with simulation.run(work) as run:
        answers = await run.finished()
    data = [
        {"object": "embedding", "index": answer.choice, "embedding": _encoded(answer.pooled, body)}
        for answer in answers
    ]
    counted = {"prompt_tokens": work.prompt_tokens, "total_tokens": work.prompt_tokens}
    await call.json({"id": work.id, "object": "list", "data": data, "model": body.model, "usage": counted})


def _encoded(vector: Sequence[float], body: EmbeddingBody) -> Any:
    if body.dimensions is not None:
        if body.dimensions > len(vector):
            raise InvalidRequest(f"Embeddings have {len(vector)} dimensions here: ask for fewer")
        length = math.hypot(*vector[: body.dimensions])
        vector = [value / length for value in vector[: body.dimensions]]
    if body.encoding_format == "base64":
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


class TokenizeBody(msgspec.Struct):
    """The fields that the endpoint reads: ``prompt``, or ``messages``."""

    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool = True


async def tokenize(simulation: Simulation, call: Call) -> None:
    """Cut a text or a conversation into tokens."""
    body = call.decode(TokenizeBody)
    if body.messages is not None:
        token_ids = chat_prompt(
            body.messages,
            continue_final=body.continue_final_message,
            add_generation_prompt=body.add_generation_prompt,
        ).token_ids
    elif body.prompt is not None:
        token_ids = encode(body.prompt)
    else:
        raise InvalidRequest("Send 'prompt' or 'messages'")
    await call.json({"count": len(token_ids), "max_model_len": simulation.settings.context_length, "tokens": token_ids})
