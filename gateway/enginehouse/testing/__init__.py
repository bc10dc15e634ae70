"""The test kit for plugin authors: makers of test data, conformance checks, fakes, and the installed plugins.

::

    from enginehouse.testing import candidate, check_scorer, create, requirements

    def test_it_keeps_the_rules_of_a_scorer() -> None:
        check_scorer(lambda: create("scorer", "my_scorer"))

    def test_an_idle_backend_is_better() -> None:
        scorer = create("scorer", "my_scorer")
        idle, busy = scorer.score(requirements(), [candidate("a"), candidate("b", pending=9)])
        assert idle > busy
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginehouse.testing.checks.discoverers import check_discoverer
    from enginehouse.testing.checks.drivers import check_driver
    from enginehouse.testing.checks.extractors import check_extractor
    from enginehouse.testing.checks.launchers import check_launcher
    from enginehouse.testing.checks.live_engine import HttpEngineClient, check_live_engine
    from enginehouse.testing.checks.observers import check_observer
    from enginehouse.testing.checks.rescheduling import check_migrator, check_rescheduling_policy
    from enginehouse.testing.checks.routing import check_filter, check_scorer, check_strategy
    from enginehouse.testing.checks.schedulers import check_scheduler
    from enginehouse.testing.checks.speed import SlowPluginWarning
    from enginehouse.testing.checks.surfaces import check_command, check_routes
    from enginehouse.testing.checks.swappers import check_swapper
    from enginehouse.testing.fake_effects import AtMost, FakeEffects, FakeSwap, OneAtATime
    from enginehouse.testing.fake_engine import FakeEngineClient
    from enginehouse.testing.installed import check_type, create, installed_plugins
    from enginehouse.testing.make import candidate, request, request_record, requirements
    from enginehouse.testing.played_server import PlayedServer

__all__ = [
    "AtMost",
    "FakeEffects",
    "FakeEngineClient",
    "FakeSwap",
    "HttpEngineClient",
    "OneAtATime",
    "PlayedServer",
    "SlowPluginWarning",
    "candidate",
    "check_command",
    "check_discoverer",
    "check_driver",
    "check_extractor",
    "check_filter",
    "check_launcher",
    "check_live_engine",
    "check_migrator",
    "check_observer",
    "check_rescheduling_policy",
    "check_routes",
    "check_scheduler",
    "check_scorer",
    "check_strategy",
    "check_swapper",
    "check_type",
    "create",
    "installed_plugins",
    "request",
    "request_record",
    "requirements",
]

_MODULES = (
    "enginehouse.testing.checks.discoverers",
    "enginehouse.testing.checks.drivers",
    "enginehouse.testing.checks.extractors",
    "enginehouse.testing.checks.launchers",
    "enginehouse.testing.checks.live_engine",
    "enginehouse.testing.checks.observers",
    "enginehouse.testing.checks.rescheduling",
    "enginehouse.testing.checks.routing",
    "enginehouse.testing.checks.schedulers",
    "enginehouse.testing.checks.speed",
    "enginehouse.testing.checks.surfaces",
    "enginehouse.testing.checks.swappers",
    "enginehouse.testing.fake_effects",
    "enginehouse.testing.fake_engine",
    "enginehouse.testing.installed",
    "enginehouse.testing.make",
    "enginehouse.testing.played_server",
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: pytest imports this package at every start, for its fixtures."""
        if name in __all__:
            for module in map(import_module, _MODULES):
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
