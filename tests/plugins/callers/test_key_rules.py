"""Keys of the configuration have names and secrets of their own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse import ConfigError
from enginehouse.app import Gateway
from enginehouse.callers import KeySettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.errors import ConfigErrors
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_callers.key_rules import check_keys


def refusal(*keys: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        check_keys([msgspec.convert(key, KeySettings) for key in keys], ["key", "jwt", "names"])
    return refused.value


@pytest.mark.parametrize(
    ("second", "key", "problem"),
    [
        ({"name": "alice", "key": "y"}, "auth.keys[1].name", "is the same as auth.keys[0].name"),
        ({"name": "bob", "key": "x"}, "auth.keys[1].key", "is the same as auth.keys[0].key"),
        ({"name": "bob", "key": ""}, "auth.keys[1].key", "is empty"),
        ({"name": "jwt/bob", "key": "y"}, "auth.keys[1].name", "is a name that the gateway gives to callers"),
        ({"name": "names/bob", "key": "y"}, "auth.keys[1].name", "'names/bob' begins as names of callers whom"),
        ({"name": "bob", "key": "y", "expires": "soon"}, "auth.keys[1].expires", "is not a date or time in ISO 8601"),
    ],
)
def test_keys_need_their_own_names_and_secrets(second: dict[str, Any], key: str, problem: str) -> None:
    error = refusal({"name": "alice", "key": "x"}, second)
    assert error.key == key
    assert error.problem.startswith(problem)


def test_a_gateway_tells_all_that_is_wrong_with_keys() -> None:
    keys = [{"name": "a", "key": "1"}, {"name": "a", "key": "1"}]
    with pytest.raises(ConfigErrors) as refused:
        Gateway(msgspec.convert({"auth": {"keys": keys}}, Config), load_plugins(PluginSettings()).registry)
    assert [each.key for each in refused.value.errors] == ["auth.keys[1].name", "auth.keys[1].key"]


def test_an_error_never_shows_a_secret() -> None:
    assert "s3cret" not in str(refusal({"name": "a", "key": "s3cret"}, {"name": "b", "key": "s3cret"}))
