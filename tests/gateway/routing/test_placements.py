"""A strategy follows the requests that it places."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse import Candidate, Requirements, Strategy
from enginehouse.errors import PluginFailed
from enginehouse.routing_facts import Placement
from enginehouse_kit.testing import candidate, requirements
from tests.support.routing import make_router, make_snapshot, take_route

SNAPSHOT = make_snapshot(candidate("a", "m"), candidate("b", "m"))


class Following(Strategy):
    """Picks the last candidate and returns ``placement``. ``heard``: what it was told."""

    def __init__(self, placement: object = None) -> None:
        self.placement = placement
        self.heard: list[tuple[str, str]] = []

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[-1]

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        self.heard.append((requirements.model, chosen.backend))
        return self.placement  # type: ignore[return-value]


class Broken(Placement):
    def queued(self) -> None:
        raise RuntimeError("no")


def test_a_route_carries_what_follows_its_request() -> None:
    strategy = Following(placement := Placement())
    router = make_router(("following", strategy), aliases={"x": "m"})
    assert router.choose(requirements("m"), SNAPSHOT).placement is None
    assert take_route(router, requirements("m"), SNAPSHOT).placement is not None
    assert take_route(router, requirements("x"), SNAPSHOT).placement.queued.args[1] == placement.queued
    assert strategy.heard == [("m", "b"), ("x", "b")]


def test_an_explanation_places_nothing() -> None:
    strategy = Following()
    make_router(("following", strategy)).explain(requirements("m"), SNAPSHOT)
    assert not strategy.heard


def test_a_failure_to_follow_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    route = take_route(make_router(("following", Following(Broken()))), requirements("m"), SNAPSHOT)
    route.placement.queued()
    assert "failed to follow a request" in caplog.text


def test_nonsense_is_refused() -> None:
    with pytest.raises(PluginFailed, match=r"from placed instead of .*Placement"):
        take_route(make_router(("following", Following("nonsense"))), requirements("m"), SNAPSHOT)
