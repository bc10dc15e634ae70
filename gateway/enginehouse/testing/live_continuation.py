"""The conformance check of continuations on a real engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from enginehouse.domain.errors import CannotContinue
from enginehouse.interfaces.drivers import EngineClient, EngineResponse, SupportsContinuation
from enginehouse.relay.continuation.asking import continuation_of
from enginehouse.relay.continuation.progress import AnswerDiffers
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.continuation.translator import ContinuationTranslator
from enginehouse.relay.events.sse import read_events

_LIMIT = 16
_PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Say hello."}]},
    "/v1/completions": {"prompt": "Say hello."},
}


def check_live_continuation(it: SupportsContinuation, client: EngineClient, model: str) -> None:
    """Cut streams of ``model`` in the middle, and have the same engine continue them, by tokens and by text.

    The rest must begin where the client's text ends, and end as a stream does. That it says the same is not checked:
    other engines round otherwise. A driver that raises ``CannotContinue`` passes.
    """
    for path, prompt in _PROMPTS.items():
        body = json.dumps({"model": model, **prompt, "max_tokens": _LIMIT, "temperature": 0, "stream": True}).encode()
        for exact in (True, False):
            asyncio.run(_check(it, client, path, body, exact))


async def _check(it: SupportsContinuation, client: EngineClient, path: str, body: bytes, exact: bool) -> None:
    asked = it.continuable(path, body)
    whole = await client.request("POST", path, asked)
    if whole.status != 200:  # not every engine has /v1/completions; chats are checked elsewhere
        return
    delivered = StreamHistory(path, body, it.streams, added=asked is not body)
    delivered.take(_first_half(whole))
    try:
        continuation = await continuation_of(delivered, delivered.body, it, client, exact=exact)
    except CannotContinue:
        return
    how = f"the continuation of {path} by {'tokens' if continuation.exact else 'text'}"
    before = delivered.progress.chars
    rest = await client.request("POST", continuation.path, continuation.body)
    _expect(rest.status == 200, f"{how} must be answered with 200, got {rest.status}: {rest.body[:200]!r}")
    try:
        list(ContinuationTranslator(delivered, continuation, it.streams).translate(rest.body))
    except (AnswerDiffers, ValueError) as error:
        raise AssertionError(f"{how} must begin where the text ends: {rest.body[:300]!r}") from error
    _expect(delivered.ended and delivered.finish is not None, f"{how} must end with a finish reason and [DONE]")
    _expect(delivered.progress.chars > before, f"{how} must bring the rest of the answer")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:  # the kit, which has assertions, imports this module
        raise AssertionError(otherwise)


def _first_half(answer: EngineResponse) -> bytes:
    ends = [event.end for event in read_events(answer.body)]
    return answer.body[: ends[len(ends) // 2]]
