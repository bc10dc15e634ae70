from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse import Health
from enginehouse.config.schema import CheckSettings
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing_facts import UNKNOWN
from tests.support.fake_clock import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock(100.0)


@pytest.fixture
def fleet(clock: StoppedClock) -> Fleet:
    return Fleet(CheckSettings(failures=3, successes=2), clock)


@pytest.fixture(scope="session")
def backend() -> Callable[..., BackendInfo]:
    """A healthy backend that declares the models named, unless the fields say otherwise."""

    def make(name: str, *models: str, **fields: Any) -> BackendInfo:
        fields.setdefault("health", Health.HEALTHY)
        fields.setdefault("models", dict.fromkeys(models, UNKNOWN) if models else None)
        fields.setdefault("url", f"http://{name}")
        return BackendInfo(name=name, **fields)

    return make
