"""Makes continuations, for drivers of engines with OpenAI's endpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse.drivers import Continuation, PartialAnswer
from enginehouse.errors import CannotContinue

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_Fields = dict[str, Any]
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
