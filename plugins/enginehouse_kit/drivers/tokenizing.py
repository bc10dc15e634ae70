"""Asks an engine for tokens, as vLLM's ``POST /tokenize`` has them: those of a prompt, and those of an answer."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from enginehouse.drivers import EngineClient, PartialAnswer
from enginehouse.engine_caches import PromptTokens
from enginehouse_kit.drivers.read_json import read_json

_OF_CHATS: Final = (
    *("messages", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
_OF_COMPLETIONS: Final = ("prompt", "add_special_tokens")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Tokenized(msgspec.Struct):
    tokens: list[int] = []
    count: int = 0
    token_strs: list[str] | None = None


async def prompt_tokens(engine: EngineClient, model: str, body: bytes) -> PromptTokens | None:
    """The tokens of the prompt in ``body``; ``None`` if the engine does not tell them."""
    try:
        asked = _some(_fields(body), "prompt", *_OF_CHATS)
        question = msgspec.json.encode({**asked, "model": model, "return_token_strs": True})
        response = await engine.request("POST", "/tokenize", question)
        if response.status != 200:
            return None
        found = msgspec.json.decode(response.body, type=_Tokenized)
    except msgspec.MsgspecError:
        return None
    return PromptTokens(found.tokens, list(accumulate(map(len, found.token_strs or ()))))


async def fill_in_tokens(engine: EngineClient, answer: PartialAnswer, *, text: bool = False) -> PartialAnswer:
    """Return ``answer`` with the number of its tokens, and with those of its prompt if those of its text are known.

    With ``text``, the engine also tokenizes the text (``text_ids``) if its tokens are unknown. Asks for no tokens that
    are known. Raises ``UpstreamError`` if the engine cannot count. If the engine does not tokenize such a prompt,
    ``prompt_ids`` stays ``None``.
    """
    text = text and answer.ids is None
    if answer.tokens is None or text:
        question = msgspec.json.encode({"prompt": answer.text, "add_special_tokens": False})
        counted = read_json(await engine.request("POST", "/tokenize", question), _Tokenized)
        tokens = counted.count if answer.tokens is None else answer.tokens
        answer = msgspec.structs.replace(answer, tokens=tokens, text_ids=counted.tokens if text else None)
    if (answer.ids is None and answer.text_ids is None) or answer.prompt_ids is not None:
        return answer
    response = await engine.request("POST", "/tokenize", _prompt(answer))
    if response.status != 200:
        return answer
    prompt = read_json(response, _Tokenized).tokens
    return msgspec.structs.replace(answer, prompt_ids=msgspec.Raw(msgspec.json.encode(prompt)))


def _prompt(answer: PartialAnswer) -> bytes:
    """The body for ``/tokenize``: the fields of the client's request that determine the tokens of the prompt."""
    fields = _fields(answer.body)
    return msgspec.json.encode(_some(fields, "model", *(_OF_CHATS if "messages" in fields else _OF_COMPLETIONS)))


def _some(fields: dict[str, msgspec.Raw], *names: str) -> dict[str, msgspec.Raw]:
    return {name: fields[name] for name in names if name in fields}
