"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.model.text import encode, piece_of, text_of
from enginehouse_sim.server.call import Call
from enginehouse_sim.server.prompts import Message, TokenId, chat_prompt
from enginehouse_sim.server.simulation import Simulation


class TokenizeBody(msgspec.Struct):
    """What is read of a tokenize request: ``prompt``, or ``messages``."""

    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool = True


class DetokenizeBody(msgspec.Struct):
    """What is read of a detokenize request."""

    tokens: list[TokenId]


async def tokenize(simulation: Simulation, call: Call) -> None:
    """The tokens of a text or a conversation."""
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
    """The text of tokens."""
    await call.json({"prompt": text_of(call.decode(DetokenizeBody).tokens)})
