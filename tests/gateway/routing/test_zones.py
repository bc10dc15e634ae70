from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from enginehouse.app import build_fleet, build_router
from enginehouse.app.plan import settle
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import (
    ConfigErrors,
    FallbackExhausted,
    ModelNotFound,
    NoHealthyBackend,
    RequestError,
    ZoneUnavailable,
)
from enginehouse.domain.replica import Health
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.fleet import Fleet
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.routing.router import Router
from tests.support.routing import take_route

HOME, CLOUD = "http://10.0.0.1", "https://cloud.example"


def house(zones: object = None, routing: Mapping[str, object] | None = None) -> tuple[Router, Fleet]:
    backends = {
        "home": {"url": HOME, "zone": "private", "tier": 1, "models": ["m", "own", "secret"], "priority": 9},
        "cloud": {"url": CLOUD, "tier": 3, "models": ["m", "big", "secret"]},
    }
    fallbacks = {"own": ["big"], "big": ["own"]}
    decided = {"strategy": "priority_only", "fallbacks": fallbacks, **(routing or {})}
    config = msgspec.convert({"backends": backends, "zones": zones or {}, "routing": decided}, Config)
    registry = load_plugins(PluginSettings()).registry
    config, _ = settle(config, registry)
    fleet = build_fleet(config)
    for name in backends:
        fleet.succeeded(name)
    return build_router(config, registry), fleet


ZONES = {"private": {"models": ["secret*"], "keys": ["clinic-*"], "headers": ["x-zone: private"]}}


def goes_to(
    router: Router, fleet: Fleet, model: str, key: str | None = None, headers: list[tuple[bytes, bytes]] | None = None
) -> str:
    needs = Requirements(model=model, caller=key)
    router.apply_rules(needs, headers or [])
    try:
        return take_route(router, needs, fleet.snapshot).chosen.backend
    except RequestError as error:
        return error.code


@pytest.mark.parametrize(
    ("model", "key", "headers", "expected"),
    [
        ("m", None, [], "cloud"),
        ("m", "clinic-7", [], "home"),
        ("m", "other", [], "cloud"),
        ("m", None, [(b"x-zone", b"private")], "home"),
        ("m", None, [(b"x-zone", b"public")], "cloud"),
        ("secret", None, [], "home"),
        ("big", "clinic-1", [], "own"),
    ],
)
def test_a_request_stays_in_its_zone(
    model: str, key: str | None, headers: list[tuple[bytes, bytes]], expected: str
) -> None:
    router, fleet = house(zones=ZONES)
    found = goes_to(router, fleet, model, key, headers)
    assert found == ("home" if expected == "own" else expected)


def test_an_alias_does_not_lead_out_of_the_zone_of_its_target() -> None:
    router, fleet = house(zones=ZONES, routing={"aliases": {"gpt-4": "secret"}})
    assert goes_to(router, fleet, "gpt-4") == "home"


def test_a_request_is_refused_rather_than_sent_out_of_its_zone() -> None:
    router, fleet = house(zones=ZONES)
    for _ in range(3):
        fleet.failed("home", "it died")
    assert fleet.snapshot.candidates("m")[0].health is Health.UNHEALTHY
    assert goes_to(router, fleet, "m", "clinic-1") == "zone_unavailable"
    assert goes_to(router, fleet, "m") == "cloud"


def test_the_refusal_says_why() -> None:
    router, fleet = house(zones={"lab": {"keys": ["clinic-*"]}})
    needs = Requirements(model="m", caller="clinic-1")
    router.apply_rules(needs, [])
    with pytest.raises(ZoneUnavailable, match="must not leave zone 'lab', and no backend there serves 'm'"):
        take_route(router, needs, fleet.snapshot)
    [first, second] = router.explain(needs, fleet.snapshot).candidates
    assert first.dropped_by == second.dropped_by == "zone"
    assert second.why is not None
    assert second.why.startswith("the request must not leave zone 'lab'")


def test_fallbacks_out_of_the_zone_are_no_excuse() -> None:
    router, fleet = house(zones={"lab": {"keys": ["clinic-*"]}})
    needs = Requirements(model="own", caller="clinic-1")
    router.apply_rules(needs, [])
    with pytest.raises(ZoneUnavailable):
        take_route(router, needs, fleet.snapshot)


def test_the_list_of_filters_cannot_leave_zones_out() -> None:
    router, fleet = house(zones=ZONES, routing={"filters": ["health"]})
    assert goes_to(router, fleet, "m", "clinic-1") == "home"


def test_a_tier_is_the_least_that_serves_a_model_and_its_fallbacks() -> None:
    router, fleet = house(routing={"least_tier": {"b*": 2, "*": 1}})
    assert goes_to(router, fleet, "big") == "cloud"
    needs = Requirements(model="big")
    router.apply_rules(needs, [])
    cloud = [each.replica for each in fleet.snapshot.candidates("big")]
    with pytest.raises(FallbackExhausted):
        router.choose(needs, fleet.snapshot, cloud)
    assert router.explain(Requirements(model="own"), fleet.snapshot).chosen == "own@home"


def test_a_request_that_only_lower_tiers_could_serve_is_refused_with_the_reason() -> None:
    router, fleet = house(routing={"least_tier": {"m": 4}})
    needs = Requirements(model="m")
    router.apply_rules(needs, [])
    with pytest.raises(NoHealthyBackend, match=r"'m' with tier 4 or more \(routing.least_tier\)"):
        take_route(router, needs, fleet.snapshot)


def test_what_a_model_serves_under_an_alias_keeps_its_tier() -> None:
    router, fleet = house(routing={"least_tier": {"gpt-*": 2}, "aliases": {"gpt-4": "m"}})
    needs = Requirements(model="gpt-4")
    router.apply_rules(needs, [])
    home, cloud = sorted(fleet.snapshot.candidates("m"), key=lambda each: each.tier)
    assert router.why_not(needs, home) == "its tier is 1, and the model needs 2"
    assert router.why_not(needs, cloud) == ""
    rest = needs.at("m")
    assert take_route(router, rest, fleet.snapshot).chosen == cloud
    with pytest.raises(NoHealthyBackend):
        router.choose(rest, fleet.snapshot, (cloud.replica,))


def test_an_unknown_model_is_unknown_in_a_zone_too() -> None:
    router, fleet = house(zones=ZONES)
    with pytest.raises(ModelNotFound):
        router.choose(Requirements(model="nothing", zones=("private",)), fleet.snapshot)


def test_zones_are_refused_without_the_plugin_that_keeps_them() -> None:
    config = msgspec.convert({"zones": ZONES}, Config)
    with pytest.raises(ConfigErrors, match="zones: unknown filter 'zone'"):
        build_router(config, load_plugins(PluginSettings(disabled=["routing"])).registry)
