"""Backends whose requests go elsewhere for a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import CheckSettings
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing_facts import UNKNOWN
from tests.support.fake_clock import StoppedClock

Make = Callable[..., BackendInfo]


@pytest.fixture
def fleet(clock: StoppedClock, backend: Make) -> Fleet:
    """A fleet that probes every 5 s, with two models at the backend ``a``."""
    made = Fleet(CheckSettings(interval=5), clock)
    made.add(backend("a", "m", "n"))
    made.add(backend("b", "m"))
    return made


def paused(fleet: Fleet) -> list[str]:
    return [each.replica for row in fleet.snapshot.models.values() for each in row if each.paused]


def suspects(fleet: Fleet) -> list[str]:
    return [each.replica for row in fleet.snapshot.models.values() for each in row if each.suspect]


def test_a_backend_is_left_alone_for_as_long_as_it_asked(fleet: Fleet, clock: StoppedClock) -> None:
    fleet.leave_alone("a", 30)
    fleet.leave_alone("a", 10)
    assert paused(fleet) == ["m@a", "n@a"]
    clock.now += 12
    assert [status.leave_alone_s for status in fleet.backends()] == [18, None]
    clock.now += 18
    assert paused(fleet) == []
    assert fleet.backends()[0].leave_alone_s is None


def test_the_pause_of_a_refused_model_grows_until_it_is_served(fleet: Fleet, clock: StoppedClock) -> None:
    for pause in (5, 10, 20, 40, 80, 160, 320, 320):
        fleet.refused("a", "m", 404)
        fleet.refused("a", "m", 404)  # asked before the pause began
        assert (paused(fleet), suspects(fleet)) == (["m@a"], ["m@a"])
        clock.now += pause - 1
        assert paused(fleet) == ["m@a"]
        clock.now += 1
        assert (paused(fleet), suspects(fleet)) == ([], ["m@a"]), "it gets the next request"
    fleet.served("a", "m")
    assert (suspects(fleet), fleet.has_suspects) == ([], False)
    fleet.refused("a", "m", 401)
    clock.now += 5
    assert paused(fleet) == []
    assert "401" in str(fleet.backends()[0].last_error)


def test_a_backend_that_probes_find_well_again_is_trusted_again(fleet: Fleet) -> None:
    fleet.refused("a", "m", 404)
    fleet.probe_succeeded("a")
    assert suspects(fleet) == ["m@a"], "it was well all the time"
    fleet.mark_unhealthy("a", "gone")
    fleet.probe_succeeded("a")
    fleet.probe_succeeded("a")
    assert (suspects(fleet), paused(fleet)) == ([], [])


def test_a_backend_that_lists_other_models_is_trusted_again(fleet: Fleet) -> None:
    fleet.refused("a", "m", 404)
    fleet.set_models("a", {"m": UNKNOWN})
    assert suspects(fleet) == []


def test_an_engine_that_is_launched_anew_is_trusted_again(fleet: Fleet) -> None:
    fleet.refused("a", "m", 404)
    fleet.set_state("m@a", ReplicaState.STOPPED)
    assert suspects(fleet) == []


def test_a_reload_keeps_pauses(fleet: Fleet, clock: StoppedClock, backend: Make) -> None:
    fleet.refused("a", "m", 404)
    other = Fleet(CheckSettings(), clock)
    other.add(backend("a", "m", "n"))
    fleet.become(other)
    assert paused(fleet) == ["m@a"]
    clock.now += 5
    assert paused(fleet) == []


def test_reports_of_backends_that_are_gone_are_ignored(fleet: Fleet) -> None:
    fleet.refused("gone", "m", 404)
    fleet.served("gone", "m")
    fleet.leave_alone("gone", 3)
    assert paused(fleet) == []


@pytest.mark.parametrize("news", [lambda fleet: fleet.refused("a", "n", 404), lambda fleet: fleet.drain("b")])
def test_a_pause_ends_though_the_news_of_another_model_come_first(
    fleet: Fleet, clock: StoppedClock, news: Callable[[Fleet], None]
) -> None:
    fleet.refused("a", "m", 404)
    assert paused(fleet) == ["m@a"]
    clock.now += 6
    news(fleet)
    assert "m@a" not in paused(fleet)
