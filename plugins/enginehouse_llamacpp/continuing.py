"""Continues the streams of a ``llama-server``."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.drivers import Continuation, EngineClient, PartialAnswer, StreamTraits, SupportsContinuation, add_field
from enginehouse.errors import CannotContinue
from enginehouse_kit.drivers import continue_ids, continue_text, read_json
from enginehouse_llamacpp.token_finder import TokenFinder

_CHAT = "/v1/chat/completions"
_REPORTED = {"logprobs": 1, "post_sampling_probs": True}


class LlamaCppConfig(msgspec.Struct, frozen=True):
    """``token_ids``: have the servers report the tokens of their streams, for engines of another kind.

    It costs a server a part of its speed: the docs on continuations have figures. A ``llama-server`` finds the tokens
    of a stream without it.
    """

    token_ids: bool = False


class LlamaServerStreams(SupportsContinuation):
    """The part of a driver that continues streams, whether the server has one model or is a router."""

    Config = LlamaCppConfig
    streams = StreamTraits(token_by_token=True, caches_prefixes=True)

    def __init__(self, config: LlamaCppConfig | None = None) -> None:
        self._finder = TokenFinder()
        self._reports = config is not None and config.token_ids
        if self._reports:
            self.streams = StreamTraits(added=("logprobs",), caches_prefixes=True)

    def continuable(self, path: str, body: bytes) -> bytes:
        """Ask for one probability per token if configured: only there a stream has the tokens' ids.

        Those after sampling need not be computed from the whole vocabulary.
        """
        if not self._reports:
            return body
        if path != _CHAT:
            asked = add_field(body, "logprobs", b"1")
        elif b'"top_logprobs"' in body or b'"tools"' in body:  # it refuses logprobs in streams with tools
            return body
        else:
            asked = add_field(body, "logprobs", b"true")
            asked = body if asked is body else add_field(asked, "top_logprobs", b"1")
        return body if asked is body else add_field(asked, "post_sampling_probs", b"true")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Have the engine find the tokens of the answer, apply its template and tokenize the prompt."""
        if answer.ids is None:
            answer = await self._with_tokens(engine, answer)
        if (answer.ids is None and answer.text_ids is None) or answer.prompt_ids is not None:
            return answer
        prompt: Any = msgspec.json.decode(answer.body).get("prompt")
        if answer.path == _CHAT:
            prompt = read_json(await engine.request("POST", "/apply-template", answer.body), _Prompt).prompt
        if not isinstance(prompt, str):
            return answer
        ids = msgspec.Raw(msgspec.json.encode(await _tokens(engine, answer, prompt, special=True)))
        return msgspec.structs.replace(answer, prompt_ids=ids)

    async def _with_tokens(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """``answer`` with its tokens, if its events tell them; else with those that ``engine`` makes of it."""
        pieces = answer.pieces
        found = None if pieces is None else await self._finder.find(engine, _model(answer), pieces)
        if found is not None and found.exact:
            return msgspec.structs.replace(answer, ids=found.ids, tokens=len(found.ids))
        ids = await _tokens(engine, answer, answer.text, special=False) if found is None else found.ids
        answer = msgspec.structs.replace(answer, tokens=len(ids) if answer.tokens is None else answer.tokens)
        return msgspec.structs.replace(answer, text_ids=ids) if answer.path == _CHAT or found is not None else answer

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids, else by text. The answer to an open message repeats it; in newer versions only with ``echo``:
        https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-schema.cpp
        """
        try:
            return continue_ids(answer, **_REPORTED) if self._reports else continue_ids(answer)
        except CannotContinue:
            made = continue_text(answer, repeats=True)
        return msgspec.structs.replace(made, body=add_field(made.body, "echo", b"true")) if made.path == _CHAT else made


def _model(answer: PartialAnswer) -> str:
    return str(msgspec.json.decode(answer.body).get("model"))  # a router has several


async def _tokens(engine: EngineClient, answer: PartialAnswer, text: str, *, special: bool) -> list[int]:
    """The tokens of ``text``; ``special``: it is a whole prompt, with control tokens."""
    question = {"model": _model(answer), "content": text, "add_special": special, "parse_special": special}
    return read_json(await engine.request("POST", "/tokenize", msgspec.json.encode(question)), _Tokens).tokens


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Prompt(msgspec.Struct):
    prompt: str
