"""What holds for any fleet, any request and any configuration."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate, Capabilities, Health, RequestError, Requirements, Route
from enginehouse.domain.errors import FallbackExhausted
from enginehouse.domain.replica import Snapshot
from enginehouse.errors import ModelNotFound
from enginehouse.routing.router import Router
from enginehouse.routing_facts import Reason
from enginehouse_kit.testing import candidate
from tests.support.routing import make_router, make_snapshot

models = st.sampled_from(["m", "n", "o", "p"])
maybe = st.sampled_from([None, True, False])
capabilities = st.builds(
    Capabilities, context_length=st.sampled_from([None, 10, 100]), vision=maybe, tools=maybe, json_mode=maybe
)
candidates = st.builds(
    candidate,
    st.sampled_from(["a", "b", "c", "d"]),
    models,
    health=st.sampled_from(Health),
    draining=st.booleans(),
    priority=st.integers(0, 3),
    pending=st.integers(0, 3),
    capabilities=capabilities,
)
fleets = st.lists(candidates, max_size=12, unique_by=lambda each: each.replica)
needs = st.builds(
    Requirements,
    model=models,
    estimated_tokens=st.sampled_from([0, 50, 500]),
    needs_vision=st.booleans(),
    needs_tools=st.booleans(),
    needs_json_mode=st.booleans(),
)
settings = st.fixed_dictionaries(
    {
        "aliases": st.dictionaries(models, models, max_size=4),
        "fallbacks": st.dictionaries(models, st.lists(models, max_size=4), max_size=4),
    }
)
strategies = st.sampled_from(["smart", "round_robin", "priority_only", "random"])


def outcome(
    router: Router, required: Requirements, snapshot: Snapshot, exclude: Collection[str] = ()
) -> Route | RequestError:
    try:
        return router.choose(required, snapshot, exclude)
    except RequestError as error:
        return error


def can_serve(each: Candidate, required: Requirements) -> bool:
    able = each.capabilities
    return (
        each.health is Health.HEALTHY
        and not each.draining
        and not (required.needs_vision and able.vision is False)
        and not (required.needs_tools and able.tools is False)
        and not (required.needs_json_mode and able.json_mode is False)
        and (able.context_length is None or able.context_length >= required.estimated_tokens)
    )


@given(fleets, needs, settings, strategies)
def test_the_first_model_that_can_serve_does(
    fleet: list[Candidate], required: Requirements, config: dict[str, Any], strategy: str
) -> None:
    asked = required.model
    target = config["aliases"].get(asked)
    chain = [*(config["fallbacks"].get(target, []) if target else []), *config["fallbacks"].get(asked, [])]
    order = list(dict.fromkeys([asked, *([target] if target else []), *chain]))
    able = [model for model in order if any(each.model == model and can_serve(each, required) for each in fleet)]

    found = outcome(make_router(strategy, **config), required, make_snapshot(*fleet))
    if not able:
        assert isinstance(found, RequestError)
        if set(chain) - {asked, target}:
            assert found.details["attempted"] == order
            reasons = set(found.details["reasons"].values())
            mismatches = {"capability_mismatch", "context_length_exceeded"}
            hopeless = bool(mismatches & reasons) and "no_healthy_backend" not in reasons
            assert isinstance(found, FallbackExhausted) is not hopeless
            assert (found.retry_after is None) is hopeless
        return
    assert isinstance(found, Route)
    assert found.model == able[0]
    assert can_serve(found.chosen, required)
    assert list(found.attempted) == order[: order.index(able[0]) + 1]
    expected = Reason.MATCH if found.model == asked else Reason.ALIAS if found.model == target else Reason.FALLBACK
    assert found.reason is expected


@given(st.dictionaries(models, models), models)
def test_any_aliases_terminate_even_in_circles(aliases: dict[str, str], asked: str) -> None:
    found = outcome(make_router(aliases=aliases), Requirements(model=asked), make_snapshot())
    assert isinstance(found, ModelNotFound)


@given(fleets, needs, settings, strategies)
def test_a_retry_never_returns_to_what_just_failed(
    fleet: list[Candidate], required: Requirements, config: dict[str, Any], strategy: str
) -> None:
    failed: set[str] = set()
    asked, snap = make_router(strategy, **config), make_snapshot(*fleet)
    for _ in range(len(fleet) + 1):
        found = outcome(asked, required, snap, failed)
        if isinstance(found, RequestError):
            return
        assert found.chosen.replica not in failed
        if failed:
            assert found.reason in (Reason.RETRY, Reason.FALLBACK)
        failed.add(found.chosen.replica)
    raise AssertionError("it went on after every replica had failed")


@given(fleets, needs, settings, strategies)
def test_an_explanation_agrees_with_the_route(
    fleet: list[Candidate], required: Requirements, config: dict[str, Any], strategy: str
) -> None:
    asked, snap = make_router(strategy, **config), make_snapshot(*fleet)
    explained = asked.explain(required, snap)
    found = outcome(asked, required, snap)
    dropped = {each.replica for each in explained.candidates if each.dropped_by}
    assert all(each.why for each in explained.candidates if each.dropped_by)
    assert dropped == {
        each.replica for each in fleet if each.model in explained.attempted and not can_serve(each, required)
    }
    if isinstance(found, RequestError):
        assert explained.chosen is None
        assert explained.error == found.envelope()["error"]
    else:
        assert (explained.chosen, explained.resolved) == (found.chosen.replica, found.model)
        assert (explained.reason, explained.attempted) == (found.reason.value, list(found.attempted))
        assert explained.error is None


@given(fleets, needs, settings)
def test_smart_chooses_the_highest_score_of_those_that_can_serve(
    fleet: list[Candidate], required: Requirements, config: dict[str, Any]
) -> None:
    asked, snap = make_router("smart", **config), make_snapshot(*fleet)
    found = outcome(asked, required, snap)
    if isinstance(found, Route):
        able = [each for each in snap.candidates(found.model) if can_serve(each, required)]
        scores = [((100 - each.priority) * 50 + (100 - each.load.pending) * 30 + 2000) // 100 for each in able]
        assert found.chosen is able[scores.index(max(scores))]
