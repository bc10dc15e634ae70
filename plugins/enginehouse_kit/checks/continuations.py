"""The part of the conformance check of drivers that concerns continuations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from enginehouse.drivers import Continuation, PartialAnswer, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_kit.expect import expect

_LIMIT = 32
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_BODIES = {
    _CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": _LIMIT},
    _COMPLETIONS: {"model": "m", "prompt": "Hi", "stream": True, "max_tokens": _LIMIT, "min_tokens": 8},
}


def check_continuations(it: SupportsContinuation) -> None:
    """``continuable`` only adds fields; a ``Continuation`` asks for no more tokens than are left."""
    for path, fields in _BODIES.items():
        body = msgspec.json.encode(fields)
        added: Any = it.continuable(path, body)
        expect(isinstance(added, bytes), f"continuable must return bytes, got {added!r}")
        kept = msgspec.json.decode(added)
        expect(fields.items() <= kept.items(), f"continuable must keep all fields of {fields}, got {kept}")
        for answer in _answers(path, body):
            _check(it, answer)


def _answers(path: str, body: bytes) -> Iterator[PartialAnswer]:
    prompt = msgspec.Raw(b"[7,8,9]")
    for tokens, text in ((0, ""), (3, " one two three")):
        ids = list(range(tokens))
        yield PartialAnswer(path=path, body=body, text=text, tokens=tokens, ids=ids, prompt_ids=prompt)
        yield PartialAnswer(path=path, body=body, text=text, tokens=tokens)
    yield PartialAnswer(path=path, body=body, text=" one two", tokens=2, ids=[1], skip=4, prompt_ids=prompt)
    yield PartialAnswer(path=path, body=body, text=" one two")


def _check(it: SupportsContinuation, answer: PartialAnswer) -> None:
    try:
        made: Any = it.continuation(answer)
    except CannotContinue:
        return
    expect(isinstance(made, Continuation), f"continuation must return a Continuation, got {made!r}")
    fields = msgspec.json.decode(made.body)
    expect(fields.get("stream") is True, f"a continuation must be a stream, got {fields}")
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    right = limit is not None and limit + made.tokens == _LIMIT
    expect(right, f"after {made.tokens} of {_LIMIT} tokens, a continuation must ask for the rest, got {limit}")
    exact = answer.ids is not None and isinstance(fields.get("prompt"), list)
    expect(made.exact == exact, f"a continuation is exact if it has the tokens of the answer, got {made}")
    expect(0 <= made.skip <= len(answer.text), f"skip must be within the text, got {made.skip}")
