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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # isort: off
    # --- Makers and fakes
    from enginehouse_kit.make import candidate as candidate
    from enginehouse_kit.make import request as request
    from enginehouse_kit.make import request_record as request_record
    from enginehouse_kit.make import requirements as requirements
    from enginehouse_kit.fake_effects import AtMost as AtMost
    from enginehouse_kit.fake_effects import FakeEffects as FakeEffects
    from enginehouse_kit.fake_effects import FakeSwap as FakeSwap
    from enginehouse_kit.fake_effects import OneAtATime as OneAtATime
    from enginehouse_kit.fake_engine import FakeEngineClient as FakeEngineClient
    from enginehouse_kit.fake_share import FakeShare as FakeShare
    from enginehouse_kit.fake_service_gateway import FakeGatewayRequest as FakeGatewayRequest
    from enginehouse_kit.fake_service_gateway import FakeServiceGateway as FakeServiceGateway
    from enginehouse_kit.played_server import PlayedServer as PlayedServer

    # --- Conformance checks
    from enginehouse_kit.checks.extractors import check_extractor as check_extractor
    from enginehouse_kit.checks.routing import check_filter as check_filter
    from enginehouse_kit.checks.routing import check_scorer as check_scorer
    from enginehouse_kit.checks.routing import check_strategy as check_strategy
    from enginehouse_kit.checks.schedulers import check_scheduler as check_scheduler
    from enginehouse_kit.checks.swappers import check_swapper as check_swapper
    from enginehouse_kit.checks.scalers import check_scaler as check_scaler
    from enginehouse_kit.checks.drivers import check_driver as check_driver
    from enginehouse_kit.checks.live_engine import HttpEngineClient as HttpEngineClient
    from enginehouse_kit.checks.live_engine import check_live_engine as check_live_engine
    from enginehouse_kit.checks.launchers import check_launcher as check_launcher
    from enginehouse_kit.checks.discoverers import check_discoverer as check_discoverer
    from enginehouse_kit.checks.interceptors import check_interceptor as check_interceptor
    from enginehouse_kit.checks.continuers import check_continuer as check_continuer
    from enginehouse_kit.checks.authenticators import check_authenticator as check_authenticator
    from enginehouse_kit.checks.guards import check_guard as check_guard
    from enginehouse_kit.checks.model_sources import check_model_source as check_model_source
    from enginehouse_kit.checks.limit_stores import check_limit_store as check_limit_store
    from enginehouse_kit.checks.usage_stores import check_usage_store as check_usage_store
    from enginehouse_kit.checks.protocols import check_protocol as check_protocol
    from enginehouse_kit.checks.rescheduling_checks import check_migrator as check_migrator
    from enginehouse_kit.checks.rescheduling_checks import check_rescheduling_policy as check_rescheduling_policy
    from enginehouse_kit.checks.services import check_service as check_service
    from enginehouse_kit.checks.observers import check_observer as check_observer
    from enginehouse_kit.checks.surfaces import check_command as check_command
    from enginehouse_kit.checks.surfaces import check_routes as check_routes
    from enginehouse_kit.checks.speed import SlowPluginWarning as SlowPluginWarning

    # --- Installed plugins
    from enginehouse_kit.by_kind import check_type as check_type
    from enginehouse_kit.by_kind import check_without_effects as check_without_effects
    from enginehouse.testing.installed import create as create
    from enginehouse_kit.installed.listing import installed_plugins as installed_plugins
else:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: pytest imports this package at every start, for its fixtures."""
        from enginehouse._door import find

        return find(__name__, name)
