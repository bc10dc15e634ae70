from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse import Extractor, InferenceRequest, InvalidRequest, Requirements
from enginehouse_kit.testing import check_extractor, request


class Extracts(Extractor):
    """An extractor that does what the function says."""

    def __init__(self, what: Callable[[InferenceRequest, Requirements], Any]) -> None:
        self._what = what

    def extract(self, request: InferenceRequest, requirements: Requirements) -> Any:
        return self._what(request, requirements)


def count_calls() -> Callable[[InferenceRequest, Requirements], None]:
    calls = iter(range(1_000_000))
    return lambda request, requirements: setattr(requirements, "estimated_tokens", next(calls))


def drop_messages(request: InferenceRequest, requirements: Requirements) -> None:
    request.body.messages = None


def begin_anew(request: InferenceRequest, requirements: Requirements) -> None:
    requirements.needs_vision = requirements.needs_tools = requirements.needs_json_mode = False


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        (lambda request, requirements: requirements, "return nothing"),
        (
            lambda request, requirements: setattr(requirements, "estimated_tokens", "many"),
            "estimated_tokens|int object",
        ),
        (drop_messages, "must not change the request"),
        (count_calls(), "the same request must give the same"),
        (
            lambda request, requirements: requirements.extra.clear(),
            "changed requirements.extra\\['another_plugin.value'",
        ),
        (lambda request, requirements: setattr(requirements, "extra", {}), "changed requirements.extra"),
        (begin_anew, "changed requirements.needs_vision"),
        (lambda request, requirements: setattr(requirements, "model", "llama3"), "must not change requirements.model"),
        (lambda request, requirements: setattr(requirements, "path", "/v1/chat"), "must not change requirements.path"),
        (lambda request, requirements: request.json.update(user="x"), "must not change request.json"),
        (lambda request, requirements: request.json.clear(), "must not change request.json"),
    ],
)
def test_an_extractor_that_breaks_a_rule_is_caught(
    what: Callable[[InferenceRequest, Requirements], Any], rule: str
) -> None:
    extractor: Extractor = Extracts(what)

    with pytest.raises((AssertionError, TypeError), match=rule):  # compiled fields take only values of their types
        check_extractor(lambda: extractor)


def test_an_extractor_may_call_a_request_wrong() -> None:
    def extract(request: InferenceRequest, requirements: Requirements) -> None:
        if not request.body.messages:
            raise InvalidRequest("messages are missing")
        requirements.extra["x_messages"] = len(request.body.messages)

    check_extractor(lambda: Extracts(extract))


def test_a_made_request_reads_as_it_would_from_a_client() -> None:
    made = request({"messages": [{"role": "user", "content": "hi"}]}, headers={"X-Tenant": "a"})

    assert made.body.messages is not None
    assert made.body.messages[0].content == "hi"
    assert made.header(b"x-tenant") == b"a"
    assert made.json["model"] == made.body.model
