"""Reads the answers of engines with OpenAI's endpoints, asks for the tokens of a stream, and makes continuations."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec

from enginehouse.drivers import Continuation, EngineClient, EngineResponse, PartialAnswer
from enginehouse.engine_caches import PromptTokens
from enginehouse.errors import CannotContinue, UpstreamError

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_Fields = dict[str, Any]
T = TypeVar("T")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_value = msgspec.json.decode
_encode = msgspec.json.encode
_OF_CHATS = frozenset(
    {
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format"),
        *("max_completion_tokens", "modalities", "reasoning_effort", "include_reasoning", "documents", "logprobs"),
        *("top_logprobs", "add_generation_prompt", "continue_final_message", "chat_template", "chat_template_kwargs"),
    }
)
"""The fields of a chat that have no meaning once its prompt is tokens."""
_OF_CHAT_PROMPTS: Final = (
    *("messages", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
_OF_COMPLETION_PROMPTS: Final = ("prompt", "add_special_tokens")
"""The fields of a request that determine the tokens of its prompt, but for the model."""


def read_json(response: EngineResponse, type: type[T]) -> T:
    """Decode the JSON body of a 200 response as ``type``. Raises ``UpstreamError`` for any other response."""
    if response.status != 200:
        raise UpstreamError(f"The engine answered {response.status} instead of 200")
    try:
        return msgspec.json.decode(response.body, type=type)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"The engine's answer cannot be decoded: {error}") from None


class _Tokenized(msgspec.Struct):
    tokens: list[int] = []
    count: int = 0
    token_strs: list[str] | None = None


async def prompt_tokens(engine: EngineClient, model: str, body: bytes) -> PromptTokens | None:
    """The tokens of the prompt in ``body``; ``None`` if the engine does not tell them."""
    try:
        asked = _some(_fields(body), "prompt", *_OF_CHAT_PROMPTS)
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
    names = _OF_CHAT_PROMPTS if "messages" in fields else _OF_COMPLETION_PROMPTS
    return msgspec.json.encode(_some(fields, "model", *names))


def _some(fields: dict[str, msgspec.Raw], *names: str) -> dict[str, msgspec.Raw]:
    return {name: fields[name] for name in names if name in fields}


def continue_answer(answer: PartialAnswer, *, default_max_tokens: int | None = None, **more: Any) -> Continuation:
    """Continue by token ids, else by text. Raises ``CannotContinue`` if neither is possible."""
    try:
        return continue_ids(answer, default_max_tokens=default_max_tokens, **more)
    except CannotContinue:
        return continue_text(answer, default_max_tokens=default_max_tokens, **more)


def continue_ids(answer: PartialAnswer, *, default_max_tokens: int | None = None, **more: Any) -> Continuation:
    """Continue with ``POST /v1/completions`` after the tokens of the prompt and the answer.

    ``default_max_tokens`` is the default of the request's endpoint, ``more`` has fields to set. Raises
    ``CannotContinue`` if the tokens are unknown, or if the prompt has more than text.
    """
    if answer.ids is None or answer.prompt_ids is None:
        raise CannotContinue("The tokens of the stream are unknown")
    made = len(answer.ids)
    body = _after_tokens(answer, answer.prompt_ids, answer.ids, made, default_max_tokens, more)
    return Continuation(path=_COMPLETIONS, body=body, tokens=made, skip=answer.skip, exact=True)


def continue_text(
    answer: PartialAnswer, *, default_max_tokens: int | None = None, repeats: bool = False, **more: Any
) -> Continuation:
    """Continue at the same endpoint after the text: an open last message of a chat, or a longer prompt.

    A chat whose ``text_ids`` and ``prompt_ids`` are known continues after these, so that no chat template changes the
    text. ``repeats`` means that the engine's answer to a chat begins with the open message; ``more`` has fields to set.
    An event counts as a token where nobody counts these. Raises ``CannotContinue`` if the events are unknown too, or if
    the prompt of a completion is not text.
    """
    made = answer.tokens if answer.tokens is not None else answer.events
    if answer.text and not made:
        raise CannotContinue("How many tokens the answer has so far is unknown")
    if not answer.text:
        return Continuation(path=answer.path, body=answer.body, tokens=0)
    if answer.text_ids is not None and answer.prompt_ids is not None:
        with contextlib.suppress(CannotContinue):
            body = _after_tokens(answer, answer.prompt_ids, answer.text_ids, made, default_max_tokens, more)
            return Continuation(path=_COMPLETIONS, body=body, tokens=made)
    fields: _Fields = dict(_fields(answer.body))
    if answer.path == _CHAT:
        fields["messages"] = [*_open_messages(fields, answer.text)]
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    else:
        prompt = _value(fields.get("prompt", b"null"))
        if not isinstance(prompt, str):
            raise CannotContinue("The prompt is not text")
        fields["prompt"] = prompt + answer.text
    _limit(fields, made, answer, default_max_tokens)
    skip = len(answer.text) if repeats and answer.path == _CHAT else 0
    return Continuation(path=answer.path, body=_encode({**fields, **more}), tokens=made, skip=skip)


def _after_tokens(
    answer: PartialAnswer,
    prompt_ids: msgspec.Raw,
    ids: Sequence[int],
    made: int,
    default_max_tokens: int | None,
    more: _Fields,
) -> bytes:
    """The request for ``/v1/completions`` after the tokens of the prompt and ``ids``, with room for the rest."""
    fields: _Fields = dict(_fields(answer.body))
    if answer.path == _CHAT:
        if _has_more_than_text(fields):
            raise CannotContinue("The conversation has more than text")
        limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
        fields = {name: value for name, value in fields.items() if name not in _OF_CHATS}
        fields["max_tokens"] = limit
    _limit(fields, made, answer, default_max_tokens)
    parts = (bytes(prompt_ids).strip()[1:-1], _encode(ids)[1:-1])
    fields["prompt"] = msgspec.Raw(b"[" + b",".join(part for part in parts if part) + b"]")
    return _encode({**fields, **more})


def _open_messages(fields: _Fields, text: str) -> list[Any]:
    """The messages, with the answer as the last one. A message that was open already is continued."""
    messages = _value(fields.get("messages", b"null"))
    if messages is None:
        raise CannotContinue("The chat has no messages")
    is_open = messages and _value(fields.get("continue_final_message", b"false")) is True
    if is_open and isinstance(messages[-1].get("content"), str):
        return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + text}]
    return [*messages, {"role": "assistant", "content": text}]


def _limit(fields: _Fields, made: int, answer: PartialAnswer, default: int | None) -> None:
    """Subtract the tokens made so far from the limits of the whole answer."""
    name = "max_completion_tokens" if fields.get("max_completion_tokens") is not None else "max_tokens"
    limit = _number(fields.get(name))
    if limit is None and answer.path == _COMPLETIONS:
        limit = default
    if limit is not None:
        if limit <= made:
            raise CannotContinue("The answer already has as many tokens as it may have")
        fields[name] = limit - made
    least = _number(fields.pop("min_tokens", None))
    if least is not None and least > made:
        fields["min_tokens"] = least - made


def _number(raw: Any) -> int | None:
    value = None if raw is None else _value(raw)
    return value if isinstance(value, int) else None


def _has_more_than_text(fields: _Fields) -> bool:
    return any(
        part.get("type", "text") != "text"
        for message in _value(fields.get("messages", b"null")) or []
        for part in (message.get("content") if isinstance(message.get("content"), list) else [])
    )
