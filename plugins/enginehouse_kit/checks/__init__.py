"""Conformance checks: each calls a plugin with many samples and checks the rules of its interface.

Pass a factory that returns a new instance::

    def test_it_keeps_the_rules_of_a_filter() -> None:
        check_filter(lambda: create("filter", "my_filter", {"size": 3}))

A violation raises ``AssertionError`` with the rule and the offending value. A slow plugin gets a ``SlowPluginWarning``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enginehouse_kit.checks.authenticators import check_authenticator as check_authenticator
from enginehouse_kit.checks.backends import check_discoverer as check_discoverer
from enginehouse_kit.checks.backends import check_model_source as check_model_source
from enginehouse_kit.checks.backends import check_scaler as check_scaler
from enginehouse_kit.checks.continuers import check_continuer as check_continuer
from enginehouse_kit.checks.drivers import check_driver as check_driver
from enginehouse_kit.checks.extractors import check_extractor as check_extractor
from enginehouse_kit.checks.hand_overs import check_hand_over as check_hand_over
from enginehouse_kit.checks.interceptors import check_guard as check_guard
from enginehouse_kit.checks.interceptors import check_interceptor as check_interceptor
from enginehouse_kit.checks.launchers import check_launcher as check_launcher
from enginehouse_kit.checks.live_engine import HttpEngineClient as HttpEngineClient
from enginehouse_kit.checks.live_engine import check_live_engine as check_live_engine
from enginehouse_kit.checks.middleware import check_middleware as check_middleware
from enginehouse_kit.checks.observers import check_observer as check_observer
from enginehouse_kit.checks.protocols import check_protocol as check_protocol
from enginehouse_kit.checks.rescheduling_checks import check_migrator as check_migrator
from enginehouse_kit.checks.rescheduling_checks import check_rescheduling_policy as check_rescheduling_policy
from enginehouse_kit.checks.routing import check_filter as check_filter
from enginehouse_kit.checks.routing import check_scorer as check_scorer
from enginehouse_kit.checks.routing import check_strategy as check_strategy
from enginehouse_kit.checks.schedulers import check_scheduler as check_scheduler
from enginehouse_kit.checks.services import check_service as check_service
from enginehouse_kit.checks.stores import check_limit_store as check_limit_store
from enginehouse_kit.checks.stores import check_usage_store as check_usage_store
from enginehouse_kit.checks.surfaces import check_command as check_command
from enginehouse_kit.checks.surfaces import check_routes as check_routes
from enginehouse_kit.checks.swappers import check_swapper as check_swapper
from enginehouse_kit.checks.web_socket_servers import check_web_socket_server as check_web_socket_server
from enginehouse_kit.expect import SlowPluginWarning as SlowPluginWarning
from enginehouse_kit.plugin_manager import KINDS, create

CHECKS: Mapping[str, Callable[[Callable[[], Any]], None]] = {
    kind.name: globals()[f"check_{kind.name}"] for kind in KINDS
}
"""The check of each kind, by name, in the order of the hooks."""

_WITH_EFFECTS = {kind.name for kind in KINDS if kind.acts}


def check_type(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Run the conformance check of its kind on a registered type: ``check_type("scorer", "my_scorer")``.

    Raises ``AssertionError`` with the rule that the plugin breaks.
    """
    CHECKS[kind](partial(create, kind, type, parameters))


def check_without_effects(kind: str, factory: Callable[[], Any]) -> bool:
    """Run the check of ``kind``, unless it starts processes, reaches other machines, or has a plugin write.

    Return whether it has run.
    """
    if kind in _WITH_EFFECTS:
        return False
    CHECKS[kind](factory)
    return True
