from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from enginehouse.app import build_fleet, build_router
from enginehouse.app.plan import settle
from enginehouse.config.rules import problems
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Route
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.fleet import Fleet
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.routing.router import Router
from tests.support.advice import advice
from tests.support.routing import take_route

GOLD: Headers = [(b"x-tier", b"gold")]
BACKENDS: Mapping[str, Sequence[str]] = {"a": ["m", "small"], "b": ["m", "small"], "c": ["m", "big"]}


def configured(*rules: Mapping[str, object], **routing: object) -> Config:
    backends = {name: {"url": f"http://{name}", "models": models} for name, models in BACKENDS.items()}
    return msgspec.convert(
        {"backends": backends, "routing": {"strategy": "round_robin", "rules": rules, **routing}}, Config
    )


def house(*rules: Mapping[str, object], **routing: object) -> tuple[Router, Fleet]:
    registry = load_plugins(PluginSettings()).registry
    config, _ = settle(configured(*rules, **routing), registry)
    fleet = build_fleet(config)
    for name in BACKENDS:
        fleet.succeeded(name)
    return build_router(config, registry), fleet


def routed(
    router: Router, fleet: Fleet, model: str = "m", headers: Headers | None = None, key: str | None = None
) -> Route:
    needs = Requirements(model=model, caller=key)
    router.apply_rules(needs, headers or [])
    return take_route(router, needs, fleet.snapshot)


def shares(router: Router, fleet: Fleet, number: int, headers: Headers | None = None) -> Counter[str]:
    return Counter(routed(router, fleet, headers=headers).chosen.backend for _ in range(number))


def test_a_header_leads_to_its_backends_and_others_go_everywhere() -> None:
    router, fleet = house({"header": "x-tier: gold", "backends": ["c"]})
    assert shares(router, fleet, 6, GOLD) == {"c": 6}
    assert shares(router, fleet, 6, [(b"x-tier", b"silver")]) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(("key", "model"), [("team-7", "big"), ("other", "small"), (None, "small")])
def test_the_name_of_a_key_leads_to_another_model(key: str | None, model: str) -> None:
    router, fleet = house({"key": "team-*", "model": "big"})
    route = routed(router, fleet, "small", key=key)
    assert (route.requested, route.model) == ("small", model)
    assert route.reason.value == ("alias" if model == "big" else "match")
    assert route.attempted == (model,)


def test_header_and_key_must_both_match_and_the_first_rule_counts() -> None:
    router, fleet = house(
        {"header": "x-tier: g*", "key": "team-1", "backends": ["a"]}, {"header": "x-tier: *", "backends": ["b"]}
    )
    assert routed(router, fleet, headers=GOLD, key="team-1").chosen.backend == "a"
    assert routed(router, fleet, headers=GOLD, key="team-2").chosen.backend == "b"
    assert routed(router, fleet, headers=GOLD).chosen.backend == "b"


def test_a_rule_names_the_strategy() -> None:
    router, fleet = house({"header": "x-tier: gold", "strategy": "least_pending"})
    for name in ("a", "b"):
        fleet.load(name).begin()
    assert shares(router, fleet, 5, GOLD) == {"c": 5}
    assert shares(router, fleet, 3) == {"a": 1, "b": 1, "c": 1}


def test_backends_that_cannot_serve_mean_a_refusal_and_a_retry_stays_with_them() -> None:
    router, fleet = house({"header": "x-tier: gold", "backends": ["c"]}, fallbacks={"m": ["small"]})
    needs = Requirements(model="m")
    router.apply_rules(needs, GOLD)
    with pytest.raises(RequestError) as refused:
        router.choose(needs, fleet.snapshot, exclude=("m@c",))
    assert refused.value.code == "fallback_exhausted"
    elsewhere = fleet.snapshot.candidates("m")[0]
    assert router.why_not(needs, elsewhere) == "routing.rules[0] sends the request to: c"


@pytest.mark.parametrize("weight", [0, 0.05, 0.1, 0.5, 0.9])
def test_a_canary_gets_its_share_and_no_more(weight: float) -> None:
    router, fleet = house({"backends": ["c"], "weight": weight})
    found = shares(router, fleet, 200)
    assert found["c"] == round(200 * weight)
    assert abs(found["a"] - found["b"]) <= 1


def test_shares_hold_in_every_short_while() -> None:
    router, fleet = house({"backends": ["c"], "weight": 0.25})
    took = [routed(router, fleet).chosen.backend == "c" for _ in range(40)]
    assert all(sum(took[n : n + 4]) == 1 for n in range(0, 40, 4))


def test_a_canary_that_fails_is_not_needed_and_a_canary_serves_when_all_others_fail() -> None:
    router, fleet = house({"backends": ["c"], "weight": 0.5})
    for _ in range(3):
        fleet.failed("c", "it died")
    assert set(shares(router, fleet, 10)) == {"a", "b"}
    for _ in range(3):
        fleet.succeeded("c")
    for name in ("a", "b"):
        for _ in range(3):
            fleet.failed(name, "it died")
    assert shares(router, fleet, 10) == {"c": 10}


def test_a_canary_may_be_a_model_and_the_one_asked_for_serves_where_it_cannot() -> None:
    router, fleet = house({"model": "big", "weight": 0.25})
    assert Counter(routed(router, fleet, "small").model for _ in range(40)) == {"small": 30, "big": 10}
    for _ in range(3):
        fleet.failed("c", "it died")
    found = [routed(router, fleet, "small") for _ in range(4)]
    assert {route.model for route in found} == {"small"}
    assert found[-1].reason.value == "fallback"


def test_several_canaries_share_what_is_left() -> None:
    router, fleet = house({"backends": ["b"], "weight": 0.5}, {"backends": ["c"], "weight": 0.5})
    assert shares(router, fleet, 100) == {"b": 50, "c": 25, "a": 25}


def test_an_explanation_is_no_turn_and_names_the_rule() -> None:
    router, fleet = house({"backends": ["c"], "weight": 0.5}, {"header": "x-tier: gold", "backends": ["b"]})
    for _ in range(3):
        needs = Requirements(model="m")
        router.apply_rules(needs, GOLD, rehearsal=True)
        shown = router.explain(needs, fleet.snapshot)
        assert shown.chosen == "m@b"
    why = {each.backend: (each.dropped_by, each.why) for each in shown.candidates}
    assert why["a"] == ("rule", "routing.rules[1] sends the request to: b")
    assert routed(router, fleet).chosen.backend != "c"  # the first turn is still to come
    assert routed(router, fleet).chosen.backend == "c"


def test_a_model_that_no_engine_has_is_named_with_what_was_asked_for() -> None:
    router, fleet = house({"header": "x-tier: gold", "model": "huge"})
    with pytest.raises(RequestError, match="huge") as refused:
        routed(router, fleet, "m", GOLD)
    assert refused.value.code == "model_not_found"
    needs = Requirements(model="m")
    router.apply_rules(needs, GOLD)
    shown = router.explain(needs, fleet.snapshot)
    assert shown.error is not None
    assert shown.error["code"] == "model_not_found"


def test_faults_of_rules_are_found() -> None:
    assert [each.path for each in problems(configured({"header": "x: y"}))] == [("routing", "rules", 0)]
    with pytest.raises(msgspec.ValidationError, match="header"):
        configured({"header": "gold", "model": "m"})
    with pytest.raises(msgspec.ValidationError, match="weight"):
        configured({"model": "m", "weight": 1.5})
    found = advice(configured({"backends": ["cc", "b*"], "model": "typo"}))
    assert [each.partition(":")[0] for each in found] == ["routing.rules", "routing.rules[0].backends"]
    assert 'did you mean "c"?' in found[1]


def test_an_unknown_strategy_of_a_rule_becomes_smart_with_a_warning() -> None:
    registry = load_plugins(PluginSettings()).registry
    config, told = settle(configured({"key": "k", "strategy": "least_panding"}), registry)
    assert config.routing.rules[0].strategy == "smart"
    assert told[0].startswith("routing.rules[0].strategy: there is no strategy 'least_panding'")


def test_the_rest_of_a_request_stays_at_its_model_where_a_rule_names_another_one() -> None:
    router, fleet = house({"header": "x-tier: gold", "model": "big", "backends": ["*"]})
    needs = Requirements(model="m")
    router.apply_rules(needs, GOLD)
    assert take_route(router, needs.at("m"), fleet.snapshot).model == "m"
    assert take_route(router, needs, fleet.snapshot).model == "big"
