from __future__ import annotations

from typing import Any

import pytest

from enginehouse.config.routing import RoutingSettings
from enginehouse_kit.testing import check_extractor, request, requirements
from enginehouse_routing.session import SessionExtractor
from enginehouse_routing.structs import SessionConfig


def found(fields: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    needs = requirements()
    given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    asked = request(fields)
    asked.headers = given
    SessionExtractor(SessionConfig(RoutingSettings().session)).extract(asked, needs)
    return needs.session


def test_it_keeps_the_rules_of_extractors() -> None:
    check_extractor(lambda: SessionExtractor(SessionConfig(RoutingSettings().session)))


def test_the_first_source_that_a_request_has_counts() -> None:
    fields = {"prompt": "Hello", "user": "alice", "prompt_cache_key": "k"}
    assert found(fields, {"x-session-id": "s"}) == "s"
    assert found(fields) == "k"
    assert found({"prompt": "Hello", "user": "alice"}) == "alice"
    assert found({"prompt": "Hello"}) == ""


@pytest.mark.parametrize(("value", "session"), [(7, "7"), (None, ""), (["a"], ""), (True, ""), ({}, "")])
def test_only_texts_and_numbers_name_a_session(value: object, session: str) -> None:
    assert found({"prompt": "Hello", "prompt_cache_key": value}) == session
