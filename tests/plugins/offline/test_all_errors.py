"""All errors of a configuration, with a check that a test makes up."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse.domain.errors import ConfigError, ConfigErrors, PluginError
from enginehouse_offline.checked_config import check_all


def told(document: dict[str, Any], check: Any, **environ: str) -> list[str]:
    """The keys of the errors that ``check`` finds in a document."""
    with pytest.raises(ConfigError) as caught:
        check_all(check, document, environ)
    error = caught.value
    return [each.key or each.problem for each in (error.errors if isinstance(error, ConfigErrors) else (error,))]


def test_a_good_document_has_a_result() -> None:
    assert check_all(lambda document: document["a"], {"a": 1}, {}) == 1


def test_one_error_is_raised_as_it_is() -> None:
    def check(document: dict[str, Any]) -> None:
        if "a" in document:
            raise ConfigError("no", key="a")

    assert told({"a": 1}, check) == ["a"]


def test_errors_that_come_one_by_one_are_told_together() -> None:
    def check(document: dict[str, Any]) -> None:
        for name in document["backends"]:
            raise ConfigError("no", key=f'backends."{name}".url')

    assert told({"backends": {"a.b": {}, "c": {}}}, check) == ['backends."a.b".url', 'backends."c".url']


def test_no_more_rounds_are_made_than_ten() -> None:
    def check(document: dict[str, Any]) -> None:
        raise ConfigError("no", key=f"models.{next(iter(document['models']))}")

    assert len(told({"models": {str(number): {} for number in range(1000)}}, check)) == 10


def test_what_is_missing_only_because_it_was_dropped_is_not_told() -> None:
    def check(document: dict[str, Any]) -> None:
        if "a" in document["backends"]:
            raise ConfigError("no", key="backends.a.driver")
        if document.get("zone"):
            raise ConfigErrors([ConfigError("unknown model 'm'", key="zone"), ConfigError("empty", key="other")])

    assert told({"backends": {"a": {"models": ["m"]}}, "zone": "m"}, check) == ["backends.a.driver", "other"]


def test_a_key_that_was_dropped_is_not_missing() -> None:
    def check(document: dict[str, Any]) -> None:
        for key in document["keys"]:
            if "name" not in key:
                raise ConfigError("is missing", key="keys[0].name")
            raise ConfigError("is the name of another key", key="keys[0].name")
        raise ConfigError("empty", key="other")

    assert told({"keys": [{"name": "a"}]}, check) == ["keys[0].name", "other"]


def test_elements_of_a_list_are_dropped_from_its_end() -> None:
    def check(document: dict[str, Any]) -> None:
        wrong = [index for index, each in enumerate(document["keys"]) if each]
        if wrong:
            raise ConfigErrors([ConfigError("no", key=f"keys[{index}].name") for index in wrong])
        raise ConfigError(f"{len(document['keys'])} are left")

    assert told({"keys": [1, 0, 1, 0]}, check) == ["keys[0].name", "keys[2].name", "2 are left"]


def test_a_variable_at_fault_is_left_out() -> None:
    environ = {"ENGINEHOUSE_X": "1"}

    def check(document: dict[str, Any]) -> None:
        if environ:
            raise ConfigError("no", key="ENGINEHOUSE_X")
        raise ConfigError("no", key="a")

    with pytest.raises(ConfigErrors, match="ENGINEHOUSE_X: no\na: no"):
        check_all(check, {}, environ)


@pytest.mark.parametrize("key", ["", "a.b.c", "nothing", "list[7]", "Überall"])
def test_an_error_without_a_place_is_the_last(key: str) -> None:
    def check(document: dict[str, Any]) -> None:
        raise ConfigError("no", key=key)

    assert told({"list": []}, check)[0] in (key, "no")


def test_a_plugin_that_cannot_start_is_told_with_the_others() -> None:
    def check(document: dict[str, Any]) -> None:
        if "a" in document:
            raise ConfigError("no", key="a")
        raise PluginError("it raised", plugin="p")

    assert told({"a": 1}, check) == ["a", "plugin 'p': it raised"]
    with pytest.raises(PluginError, match="it raised"):
        check_all(check, {}, {})


def test_an_error_that_stays_without_its_key_is_told_once() -> None:
    def check(document: dict[str, Any]) -> None:
        missing = ConfigError("unknown scheduler 'fifo'", key="scheduling.scheduler")
        raise ConfigErrors([missing, ConfigError("no", key="a")]) if "a" in document else missing

    assert told({"a": 1}, check) == ["scheduling.scheduler", "a"]
