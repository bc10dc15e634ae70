"""Fixtures for tests of plugins. pytest loads them if Enginehouse is installed, unless it has ``-p no:enginehouse``.

A fixture imports its modules when a test uses it, so that pytest starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from enginehouse_kit.engines import SimEngine
    from enginehouse_kit.gateway import RunningGateway
    from enginehouse_kit.installed.listing import Row

__all__ = [
    "CheckType",
    "StartEngine",
    "StartGateway",
    "enginehouse_check",
    "enginehouse_engine",
    "enginehouse_gateway",
    "enginehouse_plugins",
]


class StartGateway(Protocol):
    """The type of the fixture ``enginehouse_gateway``."""

    def __call__(
        self, config: str | None = "", env: Mapping[str, str] | None = None, *, key: str = ""
    ) -> RunningGateway:
        """Start a gateway with the arguments of ``RunningGateway``, and wait until it listens."""


class StartEngine(Protocol):
    """The type of the fixture ``enginehouse_engine``."""

    def __call__(self, *models: str, **flags: str | int | bool) -> SimEngine:
        """Start a simulated engine with the arguments of ``SimEngine``, and wait until it listens."""


class CheckType(Protocol):
    """The type of the fixture ``enginehouse_check``."""

    def __call__(self, kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run the conformance check of its kind on a registered type."""


@pytest.fixture
def enginehouse_gateway() -> Iterator[StartGateway]:
    """Starts gateways as real processes: ``enginehouse_gateway(config)``. They stop at the end of the test."""
    from enginehouse_kit.gateway import RunningGateway

    with ExitStack() as stack:

        def start(config: str | None = "", env: Mapping[str, str] | None = None, *, key: str = "") -> RunningGateway:
            return stack.enter_context(RunningGateway(config, env, key=key))

        yield start


@pytest.fixture
def enginehouse_engine() -> Iterator[StartEngine]:
    """Starts simulated engines as real processes: ``enginehouse_engine("llama3:8b")``. They stop after the test."""
    from enginehouse_kit.engines import SimEngine

    with ExitStack() as stack:

        def start(*models: str, **flags: str | int | bool) -> SimEngine:
            return stack.enter_context(SimEngine(*models, **flags))

        yield start


@pytest.fixture(scope="session")
def enginehouse_plugins() -> list[Row]:
    """The installed plugins, as ``enginehouse plugins list`` shows them."""
    from enginehouse_kit.installed.listing import installed_plugins

    return installed_plugins()


@pytest.fixture(scope="session")
def enginehouse_check() -> CheckType:
    """Runs the conformance check of a registered type: ``enginehouse_check("filter", "my_filter")``."""
    from enginehouse_kit.checks import check_type

    return check_type
