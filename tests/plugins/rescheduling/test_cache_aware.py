"""``llumnix_load`` with ``cache_aware``: where much of a prompt was read before, little is to compute."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import Requirements, Role, Strategy
from enginehouse_kit.prefixes import ChunkExtractor
from enginehouse_kit.rescheduling import InstanceView
from enginehouse_kit.testing import request, requirements
from tests.plugins.rescheduling.test_strategies import ABC, SETTINGS, prompts, strategy
from tests.support.cluster_views import instance, view
from tests.support.routing import take_pick

LONG = "All aboard the night train. " * 200


def completion(text: str) -> Requirements:
    """What is known of a request after extraction."""
    needs = requirements(estimated_tokens=len(text) // 4)
    ChunkExtractor(256).extract(request({"prompt": text}), needs)
    return needs


def cache_aware(*instances: InstanceView, **parameters: Any) -> Strategy:
    return strategy("llumnix_load", *instances, cache_aware=True, cache_aware_min_tokens=0, **parameters)


def with_room(name: str, tokens: int, **fields: Any) -> Any:
    """An instance with that many tokens of prompts to compute, and a large cache."""
    return prompts(name, tokens, num_total_gpu_tokens=100_000, **fields)


def test_the_instance_that_has_read_the_prompt_is_picked_again() -> None:
    instances = [with_room("a", 50), with_room("b", 0), with_room("c", 0)]
    made = cache_aware(*instances)
    for _ in range(3):
        assert take_pick(made, completion(LONG), ABC).backend == "b"
        made.on_view(view(*instances), SETTINGS)
    assert take_pick(made, completion("x" * len(LONG)), ABC).backend == "b"
    assert take_pick(made, completion("y" * len(LONG)), ABC).backend == "c"


@pytest.mark.parametrize(("waiting", "picked"), [(1280, "a"), (1281, "b")])
def test_it_is_not_if_it_has_more_to_compute_than_another_one_would_have(waiting: int, picked: str) -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1))
    take_pick(made, completion(LONG), ABC[:2])
    made.on_view(view(with_room("a", waiting), with_room("b", 1)), SETTINGS)
    assert take_pick(made, completion(LONG), ABC[:2]).backend == picked


def test_what_is_cached_is_not_counted_as_to_be_computed() -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1290))
    for _ in range(2):
        take_pick(made, completion(LONG), ABC[:2])
    loads = [each.parts["load"] for each in made.explain(completion(LONG), ABC[:2])]
    assert loads == [1400 + 1400 - 5 * 256, 1290]


def test_as_much_is_remembered_as_the_cache_holds() -> None:
    made = cache_aware(prompts("a", 0), prompts("b", 2000))
    take_pick(made, completion(LONG), ABC[:2])
    [parts, _] = made.explain(completion(LONG), ABC[:2])
    assert parts.parts["locality"] == 1400 + 1400 - 1000 // 256 * 256


def test_decode_instances_read_nothing() -> None:
    made = cache_aware(with_room("a", 0, role=Role.PREFILL), instance("b", 0.5, role=Role.DECODE))
    parts = [each.parts for each in made.explain(completion(LONG), ABC[:2])]
    assert [sorted(each) for each in parts] == [["load", "locality"], ["decode_load"]]


def test_an_instance_that_was_away_has_forgotten_everything() -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1))
    take_pick(made, completion(LONG), ABC[:2])
    made.on_view(view(with_room("a", 0, schedulable=False), with_room("b", 1)), SETTINGS)
    made.on_view(view(with_room("a", 2), with_room("b", 1)), SETTINGS)
    assert take_pick(made, completion(LONG), ABC[:2]).backend == "b"


def test_without_it_no_request_is_read() -> None:
    assert not strategy("llumnix_load").extractors()
    assert len(cache_aware().extractors()) == 1


def test_tools_that_all_instances_have_read_are_a_part_of_the_prompt() -> None:
    """Tools are in no message, so the estimate of tokens leaves them out."""

    def chat(text: str) -> Requirements:
        tool = {"type": "function", "function": {"name": "read", "description": "x" * 20_000}}
        needs = requirements(estimated_tokens=len(text) // 4)
        ChunkExtractor(256).extract(request({"messages": [{"role": "user", "content": text}], "tools": [tool]}), needs)
        return needs

    instances = [with_room(name, 0) for name in "ab"]
    made = cache_aware(*instances)
    for text, candidate in (("y" * 4096, ABC[0]), ("z" * 4096, ABC[1])):
        take_pick(made, chat(text), [candidate])
    made.on_view(view(*instances), SETTINGS)
    assert take_pick(made, chat("z" * 5000), ABC[:2]).backend == "b"
