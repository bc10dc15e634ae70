"""Asks an engine for the tokens of a prompt, as vLLM's ``POST /tokenize`` has them."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from enginehouse import EngineClient, PromptTokens

_FIELDS: Final = (
    *("prompt", "messages", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
"""The fields of a request that decide the tokens of its prompt."""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _TokenizeAnswer(msgspec.Struct):
    tokens: list[int] = []
    token_strs: list[str] | None = None


async def prompt_tokens(engine: EngineClient, model: str, body: bytes) -> PromptTokens | None:
    """The tokens of the prompt in ``body``; ``None`` if the engine does not tell them."""
    try:
        fields = _fields(body)
        asked = {name: fields[name] for name in _FIELDS if name in fields}
        question = msgspec.json.encode({**asked, "model": model, "return_token_strs": True})
        response = await engine.request("POST", "/tokenize", question)
        if response.status != 200:
            return None
        found = msgspec.json.decode(response.body, type=_TokenizeAnswer)
    except msgspec.MsgspecError:
        return None
    return PromptTokens(found.tokens, list(accumulate(map(len, found.token_strs or ()))))
