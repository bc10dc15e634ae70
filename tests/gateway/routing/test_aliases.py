"""Aliases with patterns, several targets, shares and preferences."""

from __future__ import annotations

from collections import Counter

import pytest

from enginehouse import Capabilities, Health, ReplicaState
from enginehouse.config.routing import Aliases, AliasSettings, AliasTarget
from enginehouse.domain.errors import NoHealthyBackend
from enginehouse.domain.replica import Reason
from enginehouse.errors import ModelNotFound
from enginehouse_kit.testing import candidate, requirements
from tests.support.routing import make_router, make_snapshot, take_route


def chosen(name: str, settings: AliasSettings, *names: str, count: int = 1) -> list[str]:
    made = make_router("smart", aliases={name: settings})
    snapshot = make_snapshot(*(candidate(f"at-{each}", each) for each in names))
    return [take_route(made, requirements(name), snapshot).chosen.model for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "target"),
    [("claude-opus", "big"), ("claude-haiku-4", "small"), ("claude-haiku-3", "tiny"), ("gpt", None)],
)
def test_of_several_patterns_the_one_with_the_longest_text_wins(name: str, target: str | None) -> None:
    patterns: dict[str, AliasSettings] = {"claude-*": "big", "claude-haiku-*": "small", "claude-haiku-3": "tiny"}
    assert Aliases(patterns).targets(name) == ((target,) if target else ())


def test_a_name_that_matches_a_pattern_is_routed_to_its_target() -> None:
    made = make_router("smart", aliases={"claude-*": "m"})
    route = made.choose(requirements("claude-x"), make_snapshot(candidate("a", "m")))
    assert (route.chosen.model, route.reason, route.requested) == ("m", Reason.ALIAS, "claude-x")
    with pytest.raises(ModelNotFound):
        made.choose(requirements("gpt"), make_snapshot(candidate("a", "m")))


def test_names_that_clients_make_up_are_forgotten() -> None:
    aliases = Aliases({"x-*": "m"})
    assert all(aliases.targets(f"x-{n}") == ("m",) for n in range(3000))
    assert aliases._matching.cache_info().currsize <= 1000


def test_targets_in_order() -> None:
    assert chosen("gpt", ["a", "b"], "a", "b") == ["a"]
    assert chosen("gpt", ["a", "b"], "b") == ["b"]


@pytest.mark.parametrize("settings", ["blind", ["seeing", "blind"]])
def test_a_target_that_may_come_back_is_told_before_one_that_lacks_something(
    settings: AliasSettings,
) -> None:
    made = make_router("smart", aliases={"seeing": "blind", "gpt": settings})
    down = candidate("a", "seeing", health=Health.UNHEALTHY)
    snapshot = make_snapshot(down, candidate("b", "blind", capabilities=Capabilities(vision=False)))
    asked = "seeing" if settings == "blind" else "gpt"
    with pytest.raises(NoHealthyBackend, match="seeing"):
        made.choose(requirements(asked, needs_vision=True), snapshot)


def test_targets_with_weights_get_their_shares_in_every_short_while() -> None:
    shares: AliasSettings = [AliasTarget(to="a", weight=3), AliasTarget(to="b", weight=1)]
    got = chosen("gpt", shares, "a", "b", count=40)
    assert all(Counter(got[n : n + 4]) == {"a": 3, "b": 1} for n in range(0, 40, 4))
    assert set(chosen("gpt", shares, "a", count=8)) == {"a"}


def test_an_explanation_takes_no_turn() -> None:
    made = make_router("smart", aliases={"gpt": [AliasTarget(to="a"), AliasTarget(to="b")]})
    snapshot = make_snapshot(candidate("at-a", "a"), candidate("at-b", "b"))
    for _ in range(3):
        made.explain(requirements("gpt"), snapshot)
    assert [take_route(made, requirements("gpt"), snapshot).chosen.model for _ in range(2)] == ["a", "b"]


def test_a_loaded_target_is_preferred_and_then_the_first() -> None:
    made = make_router("smart", aliases={"gpt": AliasTarget(to=["a", "b"], prefer="loaded")})
    cold, warm = candidate("at-a", "a", state=ReplicaState.STOPPED), candidate("at-b", "b")
    assert take_route(made, requirements("gpt"), make_snapshot(cold, warm)).chosen.model == "b"
    assert take_route(made, requirements("gpt"), make_snapshot(cold)).chosen.model == "a"


def test_a_free_target_is_preferred() -> None:
    made = make_router("smart", aliases={"gpt": AliasTarget(to=["a", "b"], prefer="free")})
    busy, free = candidate("at-a", "a"), candidate("at-b", "b")
    busy.load.slots = 1
    busy.load.begin()
    assert take_route(made, requirements("gpt"), make_snapshot(busy, free)).chosen.model == "b"
    busy.load.end()
    assert take_route(made, requirements("gpt"), make_snapshot(busy, free)).chosen.model == "a"
