"""The conformance check of continuations on a real engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from enginehouse import Candidate, Continuer
from enginehouse.continuers import AnswerDiffers, read_events
from enginehouse.drivers import EngineClient, EngineResponse, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_kit.expect import expect
from enginehouse_kit.fake_share import FakeShare
from enginehouse_kit.make import candidate
from enginehouse_kit.plugin_manager import create

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
    continuer, chosen = create("continuer", "continuation"), candidate(model=model)
    for path, prompt in _PROMPTS.items():
        body = json.dumps({"model": model, **prompt, "max_tokens": _LIMIT, "temperature": 0, "stream": True}).encode()
        for tries in (1, 2):
            asyncio.run(_check(continuer, it, client, chosen, path, body, tries))


async def _check(
    continuer: Continuer,
    it: SupportsContinuation,
    client: EngineClient,
    chosen: Candidate,
    path: str,
    body: bytes,
    tries: int,
) -> None:
    kept, asked = continuer.keep(path, body, it, FakeShare)
    whole = await client.request("POST", path, asked)
    if whole.status != 200 or kept is None:  # not every engine has /v1/completions; chats are checked elsewhere
        return
    kept.take(_first_half(whole))
    rest = continuer.rest(kept, "continue")
    try:
        for _ in range(tries):
            question = await rest.ask(chosen, it, client)
    except CannotContinue:
        return
    if question.way == "restart":
        return
    how, events = f"the continuation of {path} by {question.way}", b""
    answer = await client.request("POST", question.path, question.body)
    expect(answer.status == 200, f"{how} must be answered with 200, got {answer.status}: {answer.body[:200]!r}")
    assert question.translator is not None
    try:
        events = b"".join(question.translator.translate(answer.body))
    except (AnswerDiffers, ValueError) as error:
        raise AssertionError(f"{how} must begin where the text ends: {answer.body[:300]!r}") from error
    expect(kept.ended and b'"finish_reason":"' in events, f"{how} must end with a finish reason and [DONE]")
    expect(events.count(b"data:") > 2, f"{how} must bring the rest of the answer")


def _first_half(answer: EngineResponse) -> bytes:
    ends = [event.end for event in read_events(answer.body)]
    return answer.body[: ends[len(ends) // 2]]
