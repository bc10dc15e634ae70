from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import InvalidRequest
from enginehouse.config.routing import Aliases
from enginehouse.config.schema import BodyFilterSettings, ModelSettings
from enginehouse.routing.body.rewrite import FiltersByName, apply


@pytest.mark.parametrize(
    ("raw", "strip", "put", "expected"),
    [
        ('{"model":"m","top_p":1,"n":2}', ["top_p", "absent"], {}, '{"model":"m","n":2}'),
        ('{"b":1,"model":"m","a":2}', [], {"b": 3, "c": [1]}, '{"b":3,"model":"m","a":2,"c":[1]}'),
        ('{"a":1,"model":"m"}', ["a"], {"a": 2}, '{"model":"m","a":2}'),
        ('{"model":"m","model":"n"}', ["model", "model.x"], {"model": "x", "model.x": 1}, '{"model":"n"}'),
        ('{ "model" : "m", "a": 1.50, "b":[1e400, -0] }', ["c"], {}, '{"model":"m","a":1.50,"b":[1e400, -0]}'),
        ('{"model":"m","a":{"b":1,"c": 2.0}}', ["a.b", "a.x", "model.b", "z.b"], {}, '{"model":"m","a":{"c":2.0}}'),
        ('{"model":"m","a":{"b":1,"c":2.0}}', [], {"a.b": True}, '{"model":"m","a":{"b":true,"c":2.0}}'),
        ('{"model":"m","a":"text"}', ["a.b"], {"a.b.c": 1, "d.e": {}}, '{"model":"m","a":{"b":{"c":1}},"d":{"e":{}}}'),
        ('{"model":"m","\\u0061":1}', ["a"], {}, '{"model":"m"}'),
        ('{"model":"m","a.b":1}', ["a"], {}, '{"model":"m","a.b":1}'),
    ],
)
def test_fields_are_taken_out_and_put_in(raw: str, strip: list[str], put: dict[str, Any], expected: str) -> None:
    assert apply(raw.encode(), BodyFilterSettings(strip=strip, set=put)).decode() == expected


def test_long_numbers_and_bytes_that_are_no_text_survive() -> None:
    digits = b"9" * 5000
    raw = b'{"model":"m","n":%b,"s":"\xff\xfe","x":1}' % digits
    assert apply(raw, BodyFilterSettings(strip=["x"])) == b'{"model":"m","n":%b,"s":"\xff\xfe"}' % digits


def test_keys_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        apply(b'{"model":"m","\xff":1}', BodyFilterSettings(strip=["x"]))


@pytest.fixture
def by_name() -> FiltersByName:
    models = {
        "served": ModelSettings(driver="sim", filters=BodyFilterSettings(strip=["a"], set={"b": 1})),
        "high": ModelSettings(filters=BodyFilterSettings(set={"b": 2})),
        "plain": ModelSettings(driver="sim"),
    }
    return FiltersByName(models, Aliases({"high": "served", "other": "served"}))


@pytest.mark.parametrize(
    ("requested", "model", "expected"),
    [
        ("served", "served", {"b": 1}),
        ("other", "served", {"b": 1}),
        ("high", "served", {"b": 2}),
        ("high", "plain", {"a": 0}),
        ("plain", "served", {"b": 1}),
    ],
)
def test_an_alias_may_have_filters_of_its_own(
    requested: str, model: str, expected: dict[str, int], by_name: FiltersByName
) -> None:
    assert json.loads(by_name.apply(b'{"model":"m","a":0}', requested, model)) == {"model": "m"} | expected


def test_a_body_that_nothing_filters_is_the_same_object(by_name: FiltersByName) -> None:
    raw = b"not even JSON"
    assert by_name.apply(raw, "plain", "plain") is raw
    assert by_name.change_any
    assert not FiltersByName({"plain": ModelSettings(driver="sim")}, Aliases({})).change_any


fields = st.sampled_from(["model", "a", "b", "temperature", "é", '"']) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=4
)
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
written = numbers | st.sampled_from(["true", "null", '"x\\u00e9\\n"', '[1.0, {"model" : 2.50}]', '{"a" : 1.0}'])
values = st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
bodies = st.dictionaries(fields, written, max_size=6).map(lambda body: {"model": '"n"'} | body | {"model": '"m"'})


@given(bodies, st.lists(fields, max_size=3), st.dictionaries(fields, values, max_size=3))
def test_what_no_filter_names_stays_as_it_was_written(
    body: dict[str, str], strip: list[str], put: dict[str, Any]
) -> None:
    raw = "{" + ", ".join(f"{json.dumps(key)} : {value}" for key, value in body.items()) + "}"
    changed = apply(raw.encode(), BodyFilterSettings(strip=strip, set=put))
    result = {
        key: bytes(value).decode() for key, value in msgspec.json.decode(changed, type=dict[str, msgspec.Raw]).items()
    }
    kept = {key: value for key, value in body.items() if key == "model" or key not in strip}
    new = {key: value for key, value in put.items() if key != "model"}
    assert [*result] == [*dict.fromkeys([*kept, *new])]
    for key, value in result.items():
        if key in new:
            assert json.loads(value) == new[key]
        else:
            assert value == kept[key]


@given(bodies, st.lists(fields, max_size=2), st.dictionaries(fields, values, max_size=2))
def test_filters_applied_twice_change_nothing_more(body: dict[str, str], strip: list[str], put: dict[str, Any]) -> None:
    raw = ("{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in body.items()) + "}").encode()
    filters = BodyFilterSettings(strip=[name for name in strip if name not in put], set=put)
    once = apply(raw, filters)
    assert apply(once, filters) == once
