"""``llumnix_load`` with ``cache_aware``: where much of a prompt was read before, little is to compute."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import Body, InferenceRequest, InstanceView, Message, Part, Requirements, Role, Strategy
from enginehouse_rescheduling.prefixes.chunks import CHUNK_TOKENS, ChunkExtractor, chunks_of
from enginehouse_rescheduling.prefixes.index import PrefixIndex
from tests.plugins.rescheduling.test_strategies import ABC, SETTINGS, prompts, strategy
from tests.support.cluster_views import instance, view

LONG = "All aboard the night train. " * 200


def asked(body: Body, tokens: int, least: int = 0) -> Requirements:
    """What is known of a request after extraction."""
    needs = Requirements(model=body.model, estimated_tokens=tokens)
    ChunkExtractor(least).extract(InferenceRequest("/v1/chat/completions", [], b"", body), needs)
    return needs


def completion(text: Any, model: str = "m", least: int = 0) -> Requirements:
    return asked(Body(model=model, prompt=text), len(text) // 4, least)


def cache_aware(*instances: InstanceView, **parameters: Any) -> Strategy:
    return strategy("llumnix_load", *instances, cache_aware=True, cache_aware_min_tokens=0, **parameters)


def with_room(name: str, tokens: int, **fields: Any) -> Any:
    """An instance with that many tokens of prompts to compute, and a large cache."""
    return prompts(name, tokens, num_total_gpu_tokens=100_000, **fields)


def test_a_chunk_stands_for_the_prompt_up_to_its_end() -> None:
    chunks, other = chunks_of(completion(LONG)), chunks_of(completion(LONG[:3000] + "?" + LONG[3001:]))
    assert len(chunks) == len(LONG) // (4 * CHUNK_TOKENS)
    assert [mine == theirs for mine, theirs in zip(chunks, other, strict=True)] == [True, True, False, False, False]
    assert not set(chunks) & set(chunks_of(completion(LONG, "another")))


def test_all_that_a_chat_template_reads_counts_in_its_order() -> None:
    long = Part(text=LONG)
    plain = Body(model="m", messages=[Message(role="user", content=LONG)])
    parts = Body(model="m", messages=[Message(role="user", content=[long, Part(type="image_url"), Part(text="?")])])
    system = Body(model="m", system="Be brief.", messages=plain.messages)
    role = Body(model="m", messages=[Message(role="system", content=LONG)])
    first = [chunks_of(asked(each, 2000))[0] for each in (plain, parts, system, role)]
    assert first[0] == first[1]
    assert len(set(first)) == 3


def test_of_token_ids_each_counts() -> None:
    ids: list[Any] = list(range(600))
    assert len(chunks_of(completion(ids))) == 2
    assert not chunks_of(completion([["several", "prompts"]]))


def test_short_prompts_are_not_looked_up() -> None:
    assert not chunks_of(completion(LONG, least=len(LONG)))


def test_the_instance_that_has_read_the_prompt_is_picked_again() -> None:
    instances = [with_room("a", 50), with_room("b", 0), with_room("c", 0)]
    made = cache_aware(*instances)
    for _ in range(3):
        assert made.pick(completion(LONG), ABC).backend == "b"
        made.on_view(view(*instances), SETTINGS)
    assert made.pick(completion("x" * len(LONG)), ABC).backend == "b"
    assert made.pick(completion("y" * len(LONG)), ABC).backend == "c"


@pytest.mark.parametrize(("waiting", "picked"), [(1280, "a"), (1281, "b")])
def test_it_is_not_if_it_has_more_to_compute_than_another_one_would_have(waiting: int, picked: str) -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1))
    made.pick(completion(LONG), ABC[:2])
    made.on_view(view(with_room("a", waiting), with_room("b", 1)), SETTINGS)
    assert made.pick(completion(LONG), ABC[:2]).backend == picked


def test_what_is_cached_is_not_counted_as_to_be_computed() -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1290))
    for _ in range(2):
        made.pick(completion(LONG), ABC[:2])
    loads = [each.parts["load"] for each in made.explain(completion(LONG), ABC[:2])]
    assert loads == [1400 + 1400 - 5 * 256, 1290]


def test_as_much_is_remembered_as_the_cache_holds() -> None:
    made = cache_aware(prompts("a", 0), prompts("b", 2000))
    made.pick(completion(LONG), ABC[:2])
    [parts, _] = made.explain(completion(LONG), ABC[:2])
    assert parts.parts["locality"] == 1400 + 1400 - 1000 // 256 * 256


def test_decode_instances_read_nothing() -> None:
    made = cache_aware(with_room("a", 0, role=Role.PREFILL), instance("b", 0.5, role=Role.DECODE))
    parts = [each.parts for each in made.explain(completion(LONG), ABC[:2])]
    assert [sorted(each) for each in parts] == [["load", "locality"], ["decode_load"]]


def test_an_instance_that_was_away_has_forgotten_everything() -> None:
    made = cache_aware(with_room("a", 0), with_room("b", 1))
    made.pick(completion(LONG), ABC[:2])
    made.on_view(view(with_room("a", 0, schedulable=False), with_room("b", 1)), SETTINGS)
    made.on_view(view(with_room("a", 2), with_room("b", 1)), SETTINGS)
    assert made.pick(completion(LONG), ABC[:2]).backend == "b"


def test_without_it_no_request_is_read() -> None:
    assert not strategy("llumnix_load").extractors()
    assert len(cache_aware().extractors()) == 1


@pytest.mark.parametrize(("chunks", "leading"), [([1, 2, 3], 3), ([1, 2, 4], 2), ([4, 1, 2], 0), ([], 0)])
def test_only_leading_chunks_count(chunks: list[int], leading: int) -> None:
    index = PrefixIndex()
    index.note("a", [1, 2, 3], 10)
    assert index.leading("a", chunks) == leading
    assert index.leading("b", chunks) == 0


def test_the_ends_of_old_prompts_are_forgotten_first() -> None:
    index = PrefixIndex()
    index.note("a", [1, 2, 3], 4)
    index.note("a", [1, 7, 8], 4)
    assert index.leading("a", [1, 7, 8]) == 3
    assert index.leading("a", [1, 2, 3]) == 2
