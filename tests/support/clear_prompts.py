"""Prompts whose greedy answer does not depend on rounding.

Engines add up numbers in another order for each batch, so a token that leads by a hair may lose elsewhere. In a greedy
answer of the tiny model to one of these prompts, every token leads by ``LEAD`` at least. So the same ids must come
from every engine that continues it rightly, and other ids from one that continues it wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.plain_httpx import post

LEAD = 0.02
"""In nats. Two llama-servers differ by less; llama.cpp and vLLM differ by up to 0.005 in each figure."""


class ClearAnswer(NamedTuple):
    """A prompt, and the ids and the text of its greedy answer."""

    prompt: str
    ids: list[int]
    text: str


def clear_answers(url: str, model: str, tokens: int, count: int, lead: float = LEAD) -> list[ClearAnswer]:
    """The first ``count`` prompts with a clear answer of so many ``tokens``, as a llama-server at ``url`` tells it."""
    found: list[ClearAnswer] = []
    for number in range(1000):
        answer = _asked(url, model, f"Tell story {number}", tokens, lead)
        if answer is not None:
            found.append(answer)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} prompts have a clear answer of {tokens} tokens")


def _asked(url: str, model: str, prompt: str, tokens: int, lead: float) -> ClearAnswer | None:
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 2}
    answer = post(f"{url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    steps = choice["logprobs"]["content"]
    if min(_leads(steps)) < lead:
        return None
    return ClearAnswer(prompt, [step["id"] for step in steps], choice["text"])


def _leads(steps: list[dict[str, Any]]) -> Iterator[float]:
    for step in steps:
        best, second = step["top_logprobs"]
        yield best["logprob"] - second["logprob"]
