from __future__ import annotations

from typing import Any

import pytest

from enginehouse.app import build_router
from enginehouse.config.routing import RoutingSettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_kit.testing import check_extractor, request, requirements
from enginehouse_routing.session import SessionExtractor
from enginehouse_routing.structs import SessionIdConfig


def found(fields: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    needs = requirements()
    given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    asked = request(fields)
    asked.headers = given
    SessionExtractor(SessionIdConfig(RoutingSettings().session)).extract(asked, needs)
    return needs.session


def test_it_keeps_the_rules_of_extractors() -> None:
    check_extractor(lambda: SessionExtractor(SessionIdConfig(RoutingSettings().session)))


def test_the_first_source_that_a_request_has_counts() -> None:
    fields = {"prompt": "Hello", "user": "alice", "prompt_cache_key": "k"}
    assert found(fields, {"x-session-id": "s"}) == "s"
    assert found(fields) == "k"
    assert found({"prompt": "Hello", "user": "alice"}) == "alice"
    assert found({"prompt": "Hello"}) == ""


@pytest.mark.parametrize(("value", "session"), [(7, "7"), (None, ""), (["a"], ""), (True, ""), ({}, "")])
def test_only_texts_and_numbers_name_a_session(value: object, session: str) -> None:
    assert found({"prompt": "Hello", "prompt_cache_key": value}) == session


def test_the_strategy_that_reads_it_has_parameters_of_its_own() -> None:
    plugins = PluginSettings(parameters={"session": {"bound": 2.0}})
    config = Config(routing=RoutingSettings(strategy="session"), plugins=plugins)
    assert build_router(config, load_plugins(plugins).registry)
