"""The test kit for plugin authors: makers of test data, conformance checks, fakes, and the installed plugins.

::

    from enginehouse_kit.testing import candidate, check_scorer, create, requirements

    def test_it_keeps_the_rules_of_a_scorer() -> None:
        check_scorer(lambda: create("scorer", "my_scorer"))

    def test_an_idle_backend_is_better() -> None:
        scorer = create("scorer", "my_scorer")
        idle, busy = scorer.score(requirements(), [candidate("a"), candidate("b", pending=9)])
        assert idle > busy
"""

from __future__ import annotations

from enginehouse_kit.checks import (
    HttpEngineClient,
    SlowPluginWarning,
    check_authenticator,
    check_command,
    check_continuer,
    check_discoverer,
    check_driver,
    check_extractor,
    check_filter,
    check_guard,
    check_hand_over,
    check_interceptor,
    check_launcher,
    check_limit_store,
    check_live_engine,
    check_middleware,
    check_migrator,
    check_model_source,
    check_observer,
    check_protocol,
    check_rescheduling_policy,
    check_routes,
    check_scaler,
    check_scheduler,
    check_scorer,
    check_service,
    check_strategy,
    check_swapper,
    check_type,
    check_usage_store,
    check_web_socket_server,
    check_without_effects,
)
from enginehouse_kit.fake_asides import FakeAsides
from enginehouse_kit.fake_effects import AtMost, FakeEffects, FakeSwap, OneAtATime
from enginehouse_kit.fake_engine import FakeEngineClient, FakeShare
from enginehouse_kit.fake_figures import FakeFigures
from enginehouse_kit.fake_service_gateway import FakeGatewayRequest, FakeServiceGateway
from enginehouse_kit.installed.listing import Row, installed_plugins
from enginehouse_kit.make import candidate, request, request_record, requirements
from enginehouse_kit.played_server import PlayedServer
from enginehouse_kit.plugin_manager import create

__all__ = [
    "AtMost",
    "FakeAsides",
    "FakeEffects",
    "FakeEngineClient",
    "FakeFigures",
    "FakeGatewayRequest",
    "FakeServiceGateway",
    "FakeShare",
    "FakeSwap",
    "HttpEngineClient",
    "OneAtATime",
    "PlayedServer",
    "Row",
    "SlowPluginWarning",
    "candidate",
    "check_authenticator",
    "check_command",
    "check_continuer",
    "check_discoverer",
    "check_driver",
    "check_extractor",
    "check_filter",
    "check_guard",
    "check_hand_over",
    "check_interceptor",
    "check_launcher",
    "check_limit_store",
    "check_live_engine",
    "check_middleware",
    "check_migrator",
    "check_model_source",
    "check_observer",
    "check_protocol",
    "check_rescheduling_policy",
    "check_routes",
    "check_scaler",
    "check_scheduler",
    "check_scorer",
    "check_service",
    "check_strategy",
    "check_swapper",
    "check_type",
    "check_usage_store",
    "check_web_socket_server",
    "check_without_effects",
    "create",
    "installed_plugins",
    "request",
    "request_record",
    "requirements",
]
