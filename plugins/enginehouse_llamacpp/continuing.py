"""Continues the streams of a ``llama-server``."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse import (
    CannotContinue,
    Continuation,
    EngineClient,
    PartialAnswer,
    StreamTraits,
    SupportsContinuation,
    add_field,
    continue_ids,
    continue_text,
    read_json,
)

_CHAT = "/v1/chat/completions"


class LlamaServerStreams(SupportsContinuation):
    """The part of a driver that continues streams, whether the server has one model or is a router."""

    streams = StreamTraits(added=("logprobs",), caches_prefixes=True)

    def continuable(self, path: str, body: bytes) -> bytes:
        """Ask for one log-probability per token: only there a stream has the tokens' ids."""
        if path != _CHAT:
            return add_field(body, "logprobs", b"1")
        if b'"top_logprobs"' in body or b'"tools"' in body:  # it refuses logprobs in streams with tools
            return body
        asked = add_field(body, "logprobs", b"true")
        return body if asked is body else add_field(asked, "top_logprobs", b"1")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Have the engine apply its template and tokenize the prompt, and the text of an answer without ids."""
        if answer.ids is None:
            text = await _tokens(engine, answer, answer.text, special=False)
            answer = msgspec.structs.replace(answer, tokens=len(text) if answer.tokens is None else answer.tokens)
            if answer.path == _CHAT:
                answer = msgspec.structs.replace(answer, text_ids=text)
        if (answer.ids is None and answer.text_ids is None) or answer.prompt_ids is not None:
            return answer
        prompt: Any = msgspec.json.decode(answer.body).get("prompt")
        if answer.path == _CHAT:
            prompt = read_json(await engine.request("POST", "/apply-template", answer.body), _Prompt).prompt
        if not isinstance(prompt, str):
            return answer
        ids = msgspec.Raw(msgspec.json.encode(await _tokens(engine, answer, prompt, special=True)))
        return msgspec.structs.replace(answer, prompt_ids=ids)

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids, else by text. The answer to an open message repeats it; in newer versions only with ``echo``:
        https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-schema.cpp
        """
        try:
            return continue_ids(answer, logprobs=1)
        except CannotContinue:
            made = continue_text(answer, repeats=True)
        return msgspec.structs.replace(made, body=add_field(made.body, "echo", b"true")) if made.path == _CHAT else made


async def _tokens(engine: EngineClient, answer: PartialAnswer, text: str, *, special: bool) -> list[int]:
    """The tokens of ``text``; ``special``: it is a whole prompt, with control tokens."""
    model = msgspec.json.decode(answer.body).get("model")  # a router has several
    question = {"model": model, "content": text, "add_special": special, "parse_special": special}
    return read_json(await engine.request("POST", "/tokenize", msgspec.json.encode(question)), _Tokens).tokens


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Prompt(msgspec.Struct):
    prompt: str
