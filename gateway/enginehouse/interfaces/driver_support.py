"""What a driver supports, found once, when the driver is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from enginehouse.domain.continuation import Continuation, PartialAnswer
from enginehouse.domain.errors import CannotContinue
from enginehouse.domain.replica import Role
from enginehouse.interfaces.drivers import (
    Driver,
    EngineClient,
    KeepsCache,
    SupportsBootstrap,
    SupportsCacheEvents,
    SupportsContinuation,
    SupportsFigures,
    SupportsHandOver,
    SupportsLaunch,
    SupportsLoading,
    SupportsSleep,
)
from enginehouse.interfaces.launch_spec import LaunchSpec

SUPPORTS = (
    SupportsLaunch,
    SupportsLoading,
    SupportsSleep,
    SupportsFigures,
    SupportsContinuation,
    SupportsCacheEvents,
    SupportsHandOver,
    SupportsBootstrap,
    KeepsCache,
)
"""The interfaces that a driver may implement besides ``Driver``."""


class DriverSupport(NamedTuple):
    """A driver by what it supports, so that nobody asks for its class later.

    Where a driver lacks an interface with a harmless default, the default is here in its place: no launch line, no
    sleep, no figures, no continuation. Else the field is ``None``.
    """

    driver: Driver
    launch: SupportsLaunch
    loading: SupportsLoading | None
    sleep: SupportsSleep
    figures: SupportsFigures
    continuation: SupportsContinuation
    cache_events: SupportsCacheEvents | None
    hand_over: SupportsHandOver | None
    bootstrap: SupportsBootstrap | None
    cache: KeepsCache | None

    def serves_alone(self, role: Role) -> bool:
        """Whether an engine with this role serves a request without another one."""
        return self.bootstrap is None or role is Role.NEUTRAL


def support_of(driver: Driver) -> DriverSupport:
    """Find out what ``driver`` supports."""
    return DriverSupport(
        driver,
        launch=driver if isinstance(driver, SupportsLaunch) else _NoLaunch(),
        loading=driver if isinstance(driver, SupportsLoading) else None,
        sleep=driver if isinstance(driver, SupportsSleep) else _NoSleep(),
        figures=driver if isinstance(driver, SupportsFigures) else SupportsFigures(),
        continuation=driver if isinstance(driver, SupportsContinuation) else _NoContinuation(),
        cache_events=driver if isinstance(driver, SupportsCacheEvents) else None,
        hand_over=driver if isinstance(driver, SupportsHandOver) else None,
        bootstrap=driver if isinstance(driver, SupportsBootstrap) else None,
        cache=driver if isinstance(driver, KeepsCache) else None,
    )


class _NoLaunch(SupportsLaunch):
    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        return None


class _NoSleep(SupportsSleep):
    async def sleep(self, engine: EngineClient) -> bool:
        return False

    async def wake(self, engine: EngineClient) -> bool:
        return False


class _NoContinuation(SupportsContinuation):
    def continuation(self, answer: PartialAnswer) -> Continuation:
        raise CannotContinue("The driver of its engine cannot continue streams")
