"""``POST /tokenize``, as vLLM has it: the tokens of a text or of a conversation."""

from __future__ import annotations

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.text import encode
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import ChatMessage, chat_prompt


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
