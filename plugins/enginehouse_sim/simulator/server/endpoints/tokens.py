"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.text import encode, piece_of, text_of
from enginehouse_sim.simulator.server.generation.prompts import ChatMessage, TokenId, chat_prompt
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


class TokenizeBody(msgspec.Struct):
    """The fields that the endpoint reads: ``prompt``, or ``messages``."""

    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    return_token_strs: bool | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool = True


class DetokenizeBody(msgspec.Struct):
    """The fields that the endpoint reads."""

    tokens: list[TokenId]


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
    await call.json(
        {
            "count": len(token_ids),
            "max_model_len": simulation.settings.context_length,
            "tokens": token_ids,
            "token_strs": [piece_of(token) for token in token_ids] if body.return_token_strs else None,
        }
    )


async def detokenize(simulation: Simulation, call: Call) -> None:
    """Join tokens to their text."""
    await call.json({"prompt": text_of(call.decode(DetokenizeBody).tokens)})
