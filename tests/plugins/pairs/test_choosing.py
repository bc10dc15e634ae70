"""Which two engines serve a request, and which serve none alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from enginehouse import Candidate, InvalidRequest, RequestError, Role, Route
from enginehouse.drivers import support_of
from enginehouse.hand_overs import PairChoice
from enginehouse.routing_facts import Reason
from enginehouse_kit.testing import candidate, check_hand_over, create, requirements
from enginehouse_pairs.choosing import route_of
from enginehouse_pairs.pairs import Pairs

CHAT, RESPONSES, TOKENIZE = "/v1/chat/completions", "/v1/responses", "/tokenize"
P, D, N = Role.PREFILL, Role.DECODE, Role.NEUTRAL
DRIVERS = {type: support_of(create("driver", type)) for type in ("vllm", "sglang", "openai")}


class NoneLeft(RequestError, status=503, code="no_healthy_backend"):
    """As the router raises it."""


def test_it_keeps_the_rules_of_a_hand_over() -> None:
    check_hand_over(Pairs)


def chosen(
    engines: Sequence[tuple[str, Role]], path: str = CHAT, failed: tuple[str, ...] = ()
) -> tuple[str | None, str, Reason]:
    """Which of the engines, named a, b, c, reads the prompt, which one answers, and why."""
    made = [candidate(name, "m", role=role) for name, (_, role) in zip("abc", engines, strict=False)]
    drivers = {each.backend: DRIVERS[type] for each, (type, _) in zip(made, engines, strict=True)}

    def find(exclude: tuple[str, ...]) -> Route:
        left = [each for each in made if each.replica not in exclude]
        if not left:
            raise NoneLeft("m is nowhere")
        return Route("m", left[0], Reason.RETRY if exclude else Reason.MATCH, ("m",))

    def pick_decode(route: Route, exclude: tuple[str, ...]) -> Candidate | None:
        return [each for each in made if each.replica not in exclude][-1]

    route = route_of(PairChoice(requirements("m", path=path), drivers, find, pick_decode), failed)
    return route.prefill.backend if route.prefill is not None else None, route.chosen.backend, route.reason


@pytest.mark.parametrize(
    ("engines", "pair"),
    [
        ([("vllm", P), ("vllm", D)], ("a", "b")),
        ([("vllm", N), ("vllm", N)], ("a", "b")),
        ([("vllm", N)], (None, "a")),
        ([("vllm", P), ("openai", D)], (None, "a")),
        ([("openai", P), ("vllm", D)], (None, "a")),
        ([("sglang", P), ("sglang", D)], ("a", "b")),
        ([("sglang", D), ("sglang", P), ("sglang", D)], ("b", "c")),
        ([("sglang", N), ("sglang", N)], (None, "a")),
        ([("sglang", P), ("vllm", D)], (None, "b")),
        ([("vllm", P), ("sglang", D)], (None, "a")),
        ([("sglang", P), ("vllm", P), ("openai", N)], (None, "b")),
    ],
)
def test_the_engines_that_pair_up(engines: Sequence[tuple[str, Role]], pair: tuple[str | None, str]) -> None:
    assert chosen(engines) == (*pair, Reason.MATCH)


def test_to_pass_over_an_engine_after_a_failure_is_a_retry() -> None:
    assert chosen([("openai", N), ("sglang", P), ("openai", N)], failed=("m@a",)) == (None, "c", Reason.RETRY)


@pytest.mark.parametrize("path", [RESPONSES, "/v1/embeddings"])
def test_other_endpoints_need_an_engine_that_serves_alone(path: str) -> None:
    assert chosen([("sglang", P), ("openai", N)], path) == (None, "b", Reason.MATCH)
    assert chosen([("vllm", P), ("vllm", D)], path) == (None, "a", Reason.MATCH)
    with pytest.raises(InvalidRequest, match=f"cannot pair up for {path}"):
        chosen([("sglang", P), ("sglang", D)], path)


def test_tokens_are_counted_by_any_engine() -> None:
    assert chosen([("sglang", D), ("sglang", P)], TOKENIZE) == (None, "a", Reason.MATCH)


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_nothing_left_is_no_fault_of_the_request(path: str) -> None:
    with pytest.raises(NoneLeft):
        chosen([("sglang", P)], path, failed=("m@a",))


def test_without_a_partner_there_is_no_healthy_engine() -> None:
    with pytest.raises(NoneLeft):
        chosen([("sglang", P), ("sglang", P)])


def test_the_choice_leaves_the_route_as_it_is() -> None:
    made = [candidate(name, "m") for name in "ab"]
    found = Route("m", made[0], Reason.MATCH, ("m",))
    before = replace(found)
    choice = PairChoice(requirements("m"), dict.fromkeys("ab", DRIVERS["vllm"]), lambda _: found, lambda *_: made[1])
    assert route_of(choice, ()).prefill is made[0]
    assert found == before
