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

from enginehouse_kit.checks import HttpEngineClient as HttpEngineClient
from enginehouse_kit.checks import SlowPluginWarning as SlowPluginWarning
from enginehouse_kit.checks import check_authenticator as check_authenticator
from enginehouse_kit.checks import check_command as check_command
from enginehouse_kit.checks import check_continuer as check_continuer
from enginehouse_kit.checks import check_discoverer as check_discoverer
from enginehouse_kit.checks import check_driver as check_driver
from enginehouse_kit.checks import check_extractor as check_extractor
from enginehouse_kit.checks import check_filter as check_filter
from enginehouse_kit.checks import check_guard as check_guard
from enginehouse_kit.checks import check_hand_over as check_hand_over
from enginehouse_kit.checks import check_interceptor as check_interceptor
from enginehouse_kit.checks import check_launcher as check_launcher
from enginehouse_kit.checks import check_limit_store as check_limit_store
from enginehouse_kit.checks import check_live_engine as check_live_engine
from enginehouse_kit.checks import check_middleware as check_middleware
from enginehouse_kit.checks import check_migrator as check_migrator
from enginehouse_kit.checks import check_model_source as check_model_source
from enginehouse_kit.checks import check_observer as check_observer
from enginehouse_kit.checks import check_protocol as check_protocol
from enginehouse_kit.checks import check_rescheduling_policy as check_rescheduling_policy
from enginehouse_kit.checks import check_routes as check_routes
from enginehouse_kit.checks import check_scaler as check_scaler
from enginehouse_kit.checks import check_scheduler as check_scheduler
from enginehouse_kit.checks import check_scorer as check_scorer
from enginehouse_kit.checks import check_service as check_service
from enginehouse_kit.checks import check_strategy as check_strategy
from enginehouse_kit.checks import check_swapper as check_swapper
from enginehouse_kit.checks import check_type as check_type
from enginehouse_kit.checks import check_usage_store as check_usage_store
from enginehouse_kit.checks import check_web_socket_server as check_web_socket_server
from enginehouse_kit.checks import check_without_effects as check_without_effects
from enginehouse_kit.fake_asides import FakeAsides as FakeAsides
from enginehouse_kit.fake_effects import AtMost as AtMost
from enginehouse_kit.fake_effects import FakeEffects as FakeEffects
from enginehouse_kit.fake_effects import FakeSwap as FakeSwap
from enginehouse_kit.fake_effects import OneAtATime as OneAtATime
from enginehouse_kit.fake_engine import FakeEngineClient as FakeEngineClient
from enginehouse_kit.fake_engine import FakeShare as FakeShare
from enginehouse_kit.fake_figures import FakeFigures as FakeFigures
from enginehouse_kit.fake_service_gateway import FakeGatewayRequest as FakeGatewayRequest
from enginehouse_kit.fake_service_gateway import FakeServiceGateway as FakeServiceGateway
from enginehouse_kit.installed.listing import Row as Row
from enginehouse_kit.installed.listing import installed_plugins as installed_plugins
from enginehouse_kit.make import candidate as candidate
from enginehouse_kit.make import request as request
from enginehouse_kit.make import request_record as request_record
from enginehouse_kit.make import requirements as requirements
from enginehouse_kit.played_server import PlayedServer as PlayedServer
from enginehouse_kit.plugin_manager import create as create
