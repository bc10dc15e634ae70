"""Lines that are new in each request are taken out of system prompts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse import ConfigError
from enginehouse_interceptors.volatile_lines import VolatileLines
from enginehouse_kit.interceptors import Change, InterceptedRequest

NONCE = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2;\n"


def asked(messages: Any, *patterns: str) -> Any:
    """The messages after the interceptor; ``None`` if it changes nothing."""
    interceptor = VolatileLines(VolatileLines.Config(patterns=list(patterns)))
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = InterceptedRequest("/v1/chat/completions", "openai", "m", {}, body)
    said = asyncio.run(interceptor.before(request))
    if said is None:
        return None
    assert isinstance(said, Change)
    assert isinstance(said.body, dict)
    assert said.body["model"] == "m"
    return said.body["messages"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_known_lines_at_the_beginning_go(role: str) -> None:
    user = {"role": "user", "content": NONCE}
    assert asked([{"role": role, "content": f"{NONCE}You help."}, user]) == [
        {"role": role, "content": "You help."},
        user,
    ]
    parts = [{"type": "text", "text": NONCE + "You help."}, {"type": "text", "text": "Well."}]
    [message] = asked([{"role": role, "content": parts}])
    assert [each["text"] for each in message["content"]] == ["You help.", "Well."]


def test_own_patterns_match_whole_lines_anywhere() -> None:
    text = "You help.\nThe time is 12:03:04.\nNever say: The time is 12:03:04. Never."
    for pattern in (r"The time is [\d:]+\.", r"^The time is .*[\d]\.$"):
        [message] = asked([{"role": "system", "content": text}], pattern)
        assert message["content"] == "You help.\nNever say: The time is 12:03:04. Never."


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": NONCE}],
        [{"role": "system", "content": "You help. " + NONCE}],
        [{"role": "system", "content": None}, None, "text"],
        "none",
    ],
)
def test_everything_else_passes_as_it_came(messages: Any) -> None:
    assert asked(messages, "no such line") is None


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no regular expression"):
        VolatileLines(VolatileLines.Config(patterns=["("]))
