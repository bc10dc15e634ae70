from __future__ import annotations

from copy import deepcopy

import msgspec
import pytest

from enginehouse import Candidate, ReplicaState, Requirements
from enginehouse.testing import candidate, check_strategy, request, requirements
from enginehouse_routing.cache_aware import CacheAware


def made(**parameters: object) -> CacheAware:
    return CacheAware(msgspec.convert(parameters, CacheAware.Config))


def asks(strategy: CacheAware, *parts: int, tokens: int = 1000) -> Requirements:
    """The requirements of a prompt with these parts, of one chunk each."""
    needs = requirements(estimated_tokens=tokens)
    [extractor] = strategy.extractors()
    extractor.extract(request({"prompt": [part for part in parts for _ in range(64)]}), needs)
    return needs


def fleet(**pending: int) -> list[Candidate]:
    return [candidate(name, pending=count) for name, count in pending.items()]


def test_it_keeps_the_rules_of_strategies() -> None:
    check_strategy(made)


def test_a_prompt_goes_where_its_beginning_is() -> None:
    strategy = made()
    assert strategy.pick(asks(strategy, 1, 2), fleet(a=1, b=0)).backend == "b"
    assert strategy.pick(asks(strategy, 1, 2, 3, 4), fleet(a=0, b=1)).backend == "b"
    assert strategy.pick(asks(strategy, 5, 6), fleet(a=0, b=0)).backend == "a"


def test_load_outweighs_the_cache_at_last() -> None:
    strategy = made(load_weight=0.25)
    asked = asks(strategy, 1, 2)
    strategy.pick(asked, fleet(b=0))
    chosen = [deepcopy(strategy).pick(asked, fleet(a=0, b=pending)).backend for pending in (0, 3, 4, 5)]
    assert chosen == ["b", "b", "a", "a"]


def queued_tokens(strategy: CacheAware) -> float:
    """What a pending request counts as, with a ``load_weight`` of 1."""
    [verdict] = strategy.explain(asks(strategy, 9), fleet(a=1))
    return verdict.parts["queued_tokens"]


def test_a_pending_request_is_a_prompt_of_average_length() -> None:
    strategy = made(load_weight=1)
    averages = []
    for tokens in (1000, 400, 100):
        strategy.pick(asks(strategy, 1, tokens=tokens), fleet(a=0))
        averages.append(queued_tokens(strategy))
    assert averages == [1000, 700, 500]


def test_the_average_follows_the_last_hundred_prompts() -> None:
    strategy = made(load_weight=1)
    for tokens in [1000] * 1000 + [2000]:
        strategy.pick(asks(strategy, 1, tokens=tokens), fleet(a=0))
    assert queued_tokens(strategy) == 1010


def test_without_weight_load_does_not_count() -> None:
    strategy = made(load_weight=0)
    strategy.pick(asks(strategy, 1), fleet(b=0))
    assert strategy.pick(asks(strategy, 1), fleet(a=0, b=1000)).backend == "b"


def test_requests_without_a_prompt_go_where_the_load_is_least() -> None:
    strategy = made()
    assert strategy.pick(requirements(), fleet(a=2, b=1)).backend == "b"


@pytest.mark.parametrize(("priority", "wake_s"), [(0, 2.0), (1, 0.0)])
def test_priority_and_readiness_come_first(priority: int, wake_s: float) -> None:
    strategy = made()
    worse = candidate("worse", priority=1, wake_s=2.0)
    strategy.pick(asks(strategy, 1), [worse])
    better = candidate("better", pending=9, priority=priority, wake_s=wake_s)
    assert strategy.pick(asks(strategy, 1), [worse, better]).backend == "better"


def test_an_engine_that_is_launched_again_has_nothing_cached() -> None:
    strategy = made()
    strategy.pick(asks(strategy, 1, 2), fleet(a=0))
    strategy.pick(asks(strategy, 7, 8), [candidate("a", state=ReplicaState.STOPPED)])
    missing = [verdict.parts["missing_tokens"] for verdict in strategy.explain(asks(strategy, 1, 2), fleet(a=0, b=0))]
    assert missing == [1000, 1000]


def test_it_explains_what_counts_and_notes_nothing() -> None:
    strategy = made(load_weight=0.5)
    strategy.pick(asks(strategy, 1, 2), fleet(a=0))
    for _ in range(2):
        a, b = strategy.explain(asks(strategy, 1, 2, 3, 4), fleet(a=3, b=0))
        assert (a.score, a.parts) == (-2000, {"missing_tokens": 500, "queued_tokens": 1500})
        assert (b.score, b.parts) == (-1000, {"missing_tokens": 1000, "queued_tokens": 0})
        assert deepcopy(strategy).pick(asks(strategy, 1, 2, 3, 4), fleet(a=3, b=0)).backend == "b"
