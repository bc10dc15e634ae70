"""The candidates, requirements and requests of the conformance checks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice, product
from typing import Any

from enginehouse import Candidate, Capabilities, Health, InferenceRequest, ReplicaState, Requirements, Role
from enginehouse.routing_facts import UNKNOWN
from enginehouse_kit.make import candidate, request, requirements

MANY = 1000


def batches() -> Iterator[list[Candidate]]:
    """Lists of candidates: each odd one alone, all of them, their reverse, three equal ones, and a thousand."""
    odd = list(_odd_candidates())
    yield from ([each] for each in odd)
    yield odd
    yield odd[::-1]
    yield [candidate(f"twin-{number}") for number in range(3)]
    yield [_numbered(number, each) for number, each in enumerate(islice(cycle(odd), MANY))]


def needs() -> Iterator[Requirements]:
    """Requirements of a plain request, each need alone, and all needs together."""
    yield requirements()
    yield requirements("another-model", path="/v1/embeddings")
    yield requirements(stream=True, estimated_tokens=1_000_000)
    yield requirements(needs_vision=True)
    yield requirements(needs_tools=True)
    yield requirements(needs_json_mode=True)
    yield requirements(
        stream=True, estimated_tokens=5000, needs_vision=True, needs_tools=True, needs_json_mode=True, extra={"x": "y"}
    )


def requests() -> Iterator[InferenceRequest]:
    """Requests to every endpoint: plain, empty, large, and with every kind of content."""
    for messages in _conversations():
        yield request({"messages": messages})
    yield request({"messages": _SAY_HI, "stream": True}, headers={"X-Anything": "yes", "Authorization": "Bearer key"})
    yield request({"messages": _SAY_HI, "tools": []})
    yield request({"messages": _SAY_HI, "tools": [{"type": "function", "function": {"name": "look_up"}}]})
    for kind in ("text", "json_object", "json_schema"):
        yield request({"messages": _SAY_HI, "response_format": {"type": kind}})
    for prompt in ("", "once upon a time", ["two", "texts"], [1, 2, 3], [[1, 2], [3]]):
        yield request({"prompt": prompt}, "/v1/completions")
        yield request({"input": prompt}, "/v1/embeddings")
    yield request({"input": [{"role": "user", "content": "hi"}, {"type": "reasoning"}]}, "/v1/responses")
    yield request({"query": "what", "documents": ["this", {"text": "that"}]}, "/v1/rerank")
    yield request({"system": [{"type": "text", "text": "be brief"}], "messages": _SAY_HI}, "/v1/messages")
    yield request({})


_SAY_HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
_PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def _conversations() -> Iterator[list[dict[str, Any]]]:
    yield []
    yield _SAY_HI
    yield [{"role": "user", "content": "ж日🚂" * 1000}]
    yield [{"role": "assistant", "content": None}, {"role": "user", "content": ""}]
    yield [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, _PICTURE]}]
    yield [{"role": "user", "content": []}]
    yield _SAY_HI * MANY


def _odd_candidates() -> Iterator[Candidate]:
    can = Capabilities(context_length=32_768, vision=True, tools=True, json_mode=True, embeddings=True)
    cannot = Capabilities(context_length=1, vision=False, tools=False, json_mode=False, embeddings=False)
    variants: list[dict[str, Any]] = [
        *({"health": health, "draining": draining} for health, draining in product(Health, (False, True))),
        *({"state": state, "wake_s": 42.0} for state in ReplicaState),
        *({"role": role} for role in Role),
        *({"priority": priority} for priority in (0, 1, 100, 1000)),
        *({"pending": pending} for pending in (1, 100, 100_000)),
        *({"avg_latency_ms": latency} for latency in (0.5, 999.9, 1e9)),
        *({"capabilities": capabilities} for capabilities in (UNKNOWN, can, cannot)),
    ]
    for number, fields in enumerate(variants):
        yield candidate(f"odd-{number}", **fields)


def _numbered(number: int, like: Candidate) -> Candidate:
    """A copy of ``like`` with another name and other load figures."""
    fields: dict[str, Any] = {name: getattr(like, name) for name in ("health", "state", "wake_s", "role", "draining")}
    return candidate(f"gpu-{number}", priority=number % 7, pending=number % 5, capabilities=like.capabilities, **fields)
