"""The conformance check of the policies of simulated engines."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginehouse import CachedBlock, EnginePolicy
from enginehouse_kit.expect import expect


class _Request(msgspec.Struct, frozen=True):
    """A request at an engine."""

    request_id: str
    priority: int = 0
    arrival_time: float = 0.0
    num_prompt_tokens: int = 100
    num_tokens: int = 100
    max_tokens: int = 50
    num_computed_tokens: int = 0
    num_preemptions: int = 0


class _Step(msgspec.Struct, frozen=True):
    """The load of a step."""

    prefill_tokens: int = 0
    prefill_pairs: int = 0
    own_pairs: int = 0
    first_tokens: int = 0
    decodes: int = 0
    draft_tokens: int = 0
    active_kv_tokens: int = 0
    total_kv_tokens: int = 100_000


_REQUESTS = tuple(
    _Request(f"r{n}", n % 3, n * 0.5, 10 + 90 * n, 20 + 95 * n, 50 * n + 1, 10 * n, n % 2) for n in range(1, 7)
)
_BLOCKS = tuple(CachedBlock(block=5 * n + 1, uses=n * 7 % 4) for n in range(6))
_STEPS = (
    _Step(decodes=8, active_kv_tokens=4000),
    _Step(prefill_tokens=512, own_pairs=131_328, first_tokens=1),
    _Step(prefill_tokens=64, prefill_pairs=64_000, own_pairs=2080, decodes=16, active_kv_tokens=9000),
)


def check_engine_policy(factory: Callable[[], EnginePolicy]) -> None:
    """Check that every decision is possible and pure: two policies of ``factory`` decide alike, however often asked."""
    first, second = factory(), factory()
    for count in range(1, len(_REQUESTS) + 1):
        _check_index(first, second, "victim", _REQUESTS[:count])
        _check_index(first, second, "evict", _BLOCKS[:count])
    keys = [first.order(request) for request in _REQUESTS]
    expect(keys == [second.order(request) for request in _REQUESTS], "order must depend on the request alone")
    try:
        sorted(keys)
    except TypeError as error:
        expect(False, f"order must return keys that can be compared with each other: {error}")
    for step in _STEPS:
        seconds = first.seconds(step, 0.02)
        is_duration = isinstance(seconds, (int, float)) and 0 <= seconds < float("inf")
        expect(is_duration, f"seconds must be 0 or more, got {seconds!r}")
        expect(seconds == second.seconds(step, 0.02), "seconds must depend on the step alone")


def _check_index(first: EnginePolicy, second: EnginePolicy, method: str, choices: object) -> None:
    assert isinstance(choices, tuple)
    index = getattr(first, method)(choices)
    expect(type(index) is int, f"{method} must return an index, got {index!r}")
    expect(0 <= index < len(choices), f"{method} must return an index from 0 to {len(choices) - 1}, got {index!r}")
    expect(index == getattr(second, method)(choices), f"{method} must depend on its argument alone")
