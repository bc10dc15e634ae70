"""The fleet makes again only the candidates that some news may have changed: the others must not need it."""

from __future__ import annotations

import random

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import CheckSettings
from enginehouse.domain.replica import AT_REST, Health
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing_facts import UNKNOWN
from tests.support.fake_clock import StoppedClock

MODELS = dict.fromkeys("abc", UNKNOWN)
BACKENDS = (
    BackendInfo(name="static", url="http://static", models=MODELS),
    BackendInfo(name="other", url="http://other", models=MODELS),
    BackendInfo(name="loads", url="http://loads", models=MODELS, loads_models=True),
    BackendInfo(name="launched", url="", models={"a": UNKNOWN}, health=Health.HEALTHY),
)
STATES = (*AT_REST, ReplicaState.STARTING, ReplicaState.READY, ReplicaState.STOPPING)


def fleet_of(clock: StoppedClock) -> Fleet:
    fleet = Fleet(CheckSettings(interval=5, failures=2, successes=1), clock)
    for each in BACKENDS:
        fleet.add(each)
    return fleet


def tell(fleet: Fleet, rng: random.Random) -> None:
    """Tell the fleet something of a backend, or of one of its models."""
    name, model = rng.choice(BACKENDS).name, rng.choice("abc")
    news = rng.randrange(8)
    if news == 0:
        fleet.probe_succeeded(name)
    elif news == 1:
        fleet.probe_failed(name, "no answer", late=rng.random() < 0.5)
    elif news == 2:
        fleet.failed(name, "broke off")
    elif news == 3:
        fleet.leave_alone(name, rng.choice([1, 5, 20]))
    elif news == 4:
        fleet.served(name, model)
    elif news == 5:
        fleet.refused(name, model, 404)
    else:
        replica = rng.choice(["a@launched", f"{model}@loads"])
        fleet.set_state(replica, rng.choice(STATES), rng.random(), rng.choice(["", "it broke"]))


@pytest.mark.parametrize("seed", range(20))
def test_candidates_are_as_if_all_were_made_anew(seed: int, clock: StoppedClock) -> None:
    rng, fleet = random.Random(seed), fleet_of(clock)
    for _ in range(100):
        clock.now += rng.choice([0, 0.1, 1, 3, 7])
        tell(fleet, rng)
        if rng.random() < 0.5:  # else the next news come before anybody looks
            anew = fleet_of(clock)
            for each in BACKENDS:
                view = fleet.view(each.name)
                assert view is not None
                anew.follow(view)
            assert fleet.snapshot == anew.snapshot
