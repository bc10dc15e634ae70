"""Routes of requests that wait for their model."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from enginehouse import Candidate
from enginehouse.domain.replica import Reason
from enginehouse.routing_facts import Load
from enginehouse_kit.testing import requirements
from enginehouse_routing.strategies import LeastPending, RandomConfig
from tests.support.routing import make_router, make_snapshot


def engine(backend: str, pending: int, slots: int = 1, model: str = "m") -> Candidate:
    load = Load(pending=pending, slots=slots)
    return Candidate(model=model, backend=backend, replica=f"{model}@{backend}", load=load)


FULL = make_snapshot(engine("a", 1), engine("b", 1))


@pytest.mark.parametrize("strategy", ["cache_aware", "least_pending"])
def test_a_request_waits_while_the_picked_replica_has_no_free_slot(strategy: str) -> None:
    route = make_router(strategy).choose(requirements("m"), FULL)
    assert (route.waits, route.placement) == (True, None)


@pytest.mark.parametrize("strategy", ["smart", "round_robin", "p2c", "session", "random"])
def test_other_strategies_bind_at_once(strategy: str) -> None:
    assert not make_router(strategy).choose(requirements("m"), FULL).waits


@pytest.mark.parametrize(
    "candidates",
    [
        (engine("a", 9),),
        (engine("a", 9, slots=0), engine("b", 9, slots=0)),
        (engine("a", 0), engine("b", 1)),
    ],
)
def test_a_request_is_bound_to_the_only_replica_to_one_without_a_limit_and_to_a_free_one(
    candidates: tuple[Candidate, ...],
) -> None:
    assert not make_router("cache_aware").choose(requirements("m"), make_snapshot(*candidates)).waits


def test_a_request_waits_behind_those_that_wait_for_its_model() -> None:
    free = make_snapshot(engine("a", 0), engine("b", 0))
    router = make_router("cache_aware")
    assert router.choose(requirements("m"), free, waited_for={"m"}).waits
    assert not router.choose(requirements("m"), free, waited_for={"n"}).waits
    assert router.explain(requirements("m"), FULL).waits is True
    assert router.explain(requirements("m"), free).waits is UNSET


def test_a_waiting_request_is_routed_again_to_the_model_of_its_route() -> None:
    router = make_router("cache_aware", aliases={"x": "m"})
    waiting = router.choose(requirements("x"), FULL)
    assert (waiting.waits, waiting.reason) == (True, Reason.ALIAS)
    free = make_snapshot(engine("a", 1), engine("b", 0), engine("c", 0, model="x"))
    found = router.choose_again(requirements("x"), free, waiting)
    assert found is not None
    assert (found.chosen.replica, found.waits, found.reason, found.attempted) == (
        "m@b",
        False,
        Reason.ALIAS,
        ("x", "m"),
    )
    assert found.placement is None
    router.carry_out(requirements("x"), found)
    assert found.placement is not None
    assert router.choose_again(requirements("x"), free, waiting, ("m@a", "m@b")) is None


def test_the_trace_of_a_waiting_request_has_the_figures_of_its_last_decision() -> None:
    router = make_router("cache_aware")
    waiting = router.choose(requirements("m"), FULL, traced_at=1.0)
    assert waiting.details is not None
    free = make_snapshot(engine("a", 1), engine("b", 0))
    found = router.choose_again(requirements("m"), free, waiting, traced_at=2.0)
    assert found is not None
    assert found.details is not None
    assert (found.details.began, found.details.candidates) == (2.0, 2)
    assert [replica for replica, _ in found.details.losers] == ["m@a"]


class Learned(LeastPending):
    """Has learned ``figures``."""

    figures: object = {"a": {"ms": 1}}

    def learned(self) -> Any:
        return self.figures


def test_what_strategies_have_learned_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    strategy = Learned(RandomConfig())
    router = make_router(("acme_least", strategy))
    assert router.strategies.learned() == {"a": {"ms": 1.0}}
    strategy.figures = "much"
    assert router.strategies.learned() == {}
    assert "acme_least" in caplog.text
    assert make_router("smart").strategies.learned() == {}
