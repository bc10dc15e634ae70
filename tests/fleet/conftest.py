from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse import UNKNOWN, Health
from enginehouse.config.schema import Checks
from enginehouse.fleet.backend import Backend
from enginehouse.fleet.fleet import Fleet


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fleet(clock: Clock) -> Fleet:
    return Fleet(Checks(failures=3, successes=2), clock)


@pytest.fixture(scope="session")
def backend() -> Callable[..., Backend]:
    """A healthy backend that declares the models named, unless the fields say otherwise."""

    def make(name: str, *models: str, **fields: Any) -> Backend:
        fields.setdefault("health", Health.HEALTHY)
        fields.setdefault("models", dict.fromkeys(models, UNKNOWN) if models else None)
        return Backend(name=name, url=f"http://{name}", **fields)

    return make
