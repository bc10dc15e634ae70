"""The automaton reads what JSON is, and everything made from its rows is JSON, and of the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginehouse_sim.simulator.grammar.grammar import JSON_OBJECT, JSON_VALUE, Grammar, Matcher
from enginehouse_sim.simulator.model.text import EOS, encode, text_of
from tests.support.grammars import accepts, generated

ANY_VALUE, ANY_OBJECT = Grammar(JSON_VALUE), Grammar(JSON_OBJECT)
seeds = st.integers(0, 2**32)
unhurried = settings(deadline=None)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


def refuse(constant: str) -> None:
    raise ValueError(constant)


def parses(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@unhurried
@given(values, st.sampled_from([None, 1]), st.booleans())
def test_json_is_read(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert accepts(ANY_VALUE, text)
    assert accepts(ANY_OBJECT, text) == isinstance(value, dict)


@settings(max_examples=500)
@given(st.text('{}[]",:0123456789.eE+-trufalsn \n\\u\x01\x7fé', max_size=12))
def test_what_is_refused_does_not_parse_and_what_is_read_does(text: str) -> None:
    assert accepts(ANY_VALUE, text) == parses(text)


errors = st.sampled_from(["", "{", "]", '"', ",", ":", "0", "-", "\\", " ", "e"])


@unhurried
@given(values, st.lists(st.tuples(st.integers(0, 2**16), errors), min_size=5, max_size=5))
def test_json_with_an_error_in_it_is_refused_as_a_parser_refuses_it(value: Any, faults: list[tuple[int, str]]) -> None:
    text = json.dumps(value)  # drawing it takes longer than reading it: several errors in each
    for number, error in faults:
        at = number % (len(text) + 1)
        broken = text[:at] + error + text[at + 1 :]
        assert accepts(ANY_VALUE, broken) == parses(broken)


@unhurried
@given(seeds, st.integers(2, 120))
def test_generated_json_is_whole_whatever_its_length_may_be(seed: int, max_tokens: int) -> None:
    made = generated(ANY_OBJECT, seed, max_tokens)
    assert isinstance(json.loads(text_of(made)), dict)
    assert made[-1] == EOS or max_tokens == 2


@unhurried
@given(seeds, st.integers(2, 120))
def test_generated_tokens_are_the_same_when_their_text_is_cut_again(seed: int, max_tokens: int) -> None:
    made = [token for token in generated(ANY_VALUE, seed, max_tokens) if token != EOS]
    assert encode(text_of(made)) == made


def test_generated_json_ends_by_itself() -> None:
    lengths = [len(generated(ANY_OBJECT, seed, 1000)) for seed in range(100)]
    assert max(lengths) < 500
    assert sum(lengths) / 100 < 50


def test_a_refused_token_changes_nothing() -> None:
    matcher = Matcher(ANY_OBJECT)
    assert matcher.accept(encode('{"a')) == 3
    before = matcher.row(100)
    assert matcher.accept(encode("\n")) == 0
    assert matcher.accept([EOS]) == 0
    assert matcher.row(100) == before
    assert matcher.accept(encode('":1}')) == 4
    assert matcher.row(100) == {EOS}
    assert matcher.accept([EOS, EOS]) == 2
    assert matcher.accept(encode(" ")) == 0


def test_an_answer_that_may_not_end_yet_continues_if_it_can() -> None:
    number, whole = Matcher(ANY_VALUE), Matcher(ANY_OBJECT)
    number.accept(encode("12"))
    assert EOS in number.row(100)
    assert number.row(100, may_end=False) == number.row(100) - {EOS}
    whole.accept(encode("{}"))
    assert whole.row(100, may_end=False) == {EOS}


def test_an_answer_continues_after_tokens_that_no_row_contains() -> None:
    matcher = Matcher(ANY_OBJECT)
    assert matcher.accept(encode('{"a":1') + encode("2") + encode("e")) == 8
    assert matcher.row(100)


# --- schemas ---

names = st.sampled_from(["name", "temperature", "x-y", "a  b", "é", "e", "te", 'q"']) | st.text(max_size=8)
simple = st.sampled_from(["string", "integer", "number", "boolean", "null"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(properties: dict[str, Any], picks: list[bool]) -> dict[str, Any]:
        required = [name for name, pick in zip(properties, picks, strict=False) if pick]
        return {"type": "object", "properties": properties, "required": required}

    return st.builds(build, st.dictionaries(names, inner, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))


def limits(least: str, most: str) -> st.SearchStrategy[dict[str, int]]:
    def build(low: int, more: int | None) -> dict[str, int]:
        return {least: low} if more is None else {least: low, most: low + more}

    return st.builds(build, st.integers(0, 9), st.none() | st.integers(0, 9))


schemas = st.recursive(
    st.builds(lambda name: {"type": name}, simple)
    | st.builds(lambda limited: {"type": "string", **limited}, limits("minLength", "maxLength"))
    | st.builds(lambda several: {"type": several}, st.lists(simple, min_size=1, max_size=3))
    | st.builds(lambda fixed: {"enum": fixed}, st.lists(values, min_size=1, max_size=4))
    | st.builds(lambda fixed: {"const": fixed}, names),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda item, limited: {"items": item, **limited}, inner, limits("minItems", "maxItems"))
        | objects(inner)
        | st.builds(lambda several: {"anyOf": several}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda other: {"type": "object", "additionalProperties": other}, inner)
    ),
    max_leaves=6,
)

IS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def valid(schema: dict[str, Any] | bool, value: Any, root: Any) -> bool:
    """What JSON Schema says of these keywords."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        return valid(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root)
    types = schema.get("type", list(IS))
    checks = [any(IS[name](value) for name in ([types] if isinstance(types, str) else types))]
    if "enum" in schema:
        checks.append(json.dumps(value) in map(json.dumps, schema["enum"]))
    if "const" in schema:
        checks.append(json.dumps(value) == json.dumps(schema["const"]))
    if "anyOf" in schema:
        checks.append(any(valid(one, value, root) for one in schema["anyOf"]))
    if isinstance(value, str):
        checks.append(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
    if isinstance(value, list):
        checks.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
    if isinstance(value, list) and "items" in schema:
        checks.extend(valid(schema["items"], one, root) for one in value)
    if isinstance(value, dict):
        properties, other = schema.get("properties", {}), schema.get("additionalProperties", {})
        checks.append(all(name in value for name in schema.get("required", ())))
        checks.extend(valid(properties.get(name, other), one, root) for name, one in value.items())
    return all(checks)


@unhurried
@given(schemas, seeds)
def test_what_is_generated_is_of_the_schema(schema: dict[str, Any], seed: int) -> None:
    grammar = Grammar(json.dumps(schema))
    made = generated(grammar, seed, 2000)
    assert made[-1] == EOS
    assert valid(schema, json.loads(text_of(made)), schema)
    assert encode(text_of(made)) == made[:-1]


@pytest.mark.parametrize("length", [5, 7, 11])
def test_the_last_letters_of_a_string_of_one_length_do_not_merge_with_the_word_before(length: int) -> None:
    grammar = Grammar(json.dumps({"type": "string", "minLength": length, "maxLength": length}))
    for seed in range(20):
        made = generated(grammar, seed, 2000)
        assert encode(text_of(made)) == made[:-1]


@unhurried
@given(schemas, values)
def test_what_is_read_is_of_the_schema(schema: dict[str, Any], value: Any) -> None:
    assert not accepts(Grammar(json.dumps(schema)), json.dumps(value)) or valid(schema, value, schema)


TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "title": "a tree",
            "properties": {
                "name": {"type": "string"},
                "branches": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["name", "leaf"],
            "additionalProperties": {"type": "boolean"},
        }
    },
}
TREE_GRAMMAR = Grammar(json.dumps(TREE))


@unhurried
@given(seeds, st.integers(14, 200))
def test_a_schema_that_contains_itself_ends_within_its_length(seed: int, max_tokens: int) -> None:
    made = generated(TREE_GRAMMAR, seed, max_tokens)
    assert valid(TREE, json.loads(text_of(made)), TREE)


def test_properties_that_are_required_without_being_described_may_be_anything() -> None:
    grammar = Grammar('{"type": "object", "required": ["a"]}')
    assert accepts(grammar, '{"a": [1]}')
    assert not accepts(grammar, "{}")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {}}}, '{"a": {"any": "thing"}}'),
        ({"items": {"type": "null"}}, "[null, null]"),
        ({"type": "object", "additionalProperties": False}, "{}"),
        (True, "1e5"),
        ({"type": "string", "enum": ["a", 1]}, '"a"'),
    ],
)
def test_a_schema_is_understood(schema: Any, text: str) -> None:
    assert accepts(Grammar(json.dumps(schema)), text)
    assert not accepts(Grammar(json.dumps(schema)), text[:-1] + "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a JSON schema"),
        ("7", "a schema is an object"),
        ("false", "a schema is an object"),
        ('{"type": "string", "pattern": "a+"}', "pattern: not understood"),
        ('{"anyOf": [{}], "type": "string"}', "type: not understood here"),
        ('{"type": "text"}', "no 'text'"),
        ('{"enum": []}', "enum is a list"),
        ('{"enum": [1], "type": "string"}', "none of the values"),
        ('{"$ref": "#/$defs/a"}', "no #/"),
        ('{"$ref": "http://elsewhere"}', "not in this schema"),
        ('{"$ref": "#"}', "without end"),
        ('{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}', "without end"),
        ('{"properties": [], "type": "object"}', "properties is an object"),
        ('{"required": [[]]}', "required is a list of names"),
        ('{"type": 7}', "type is a list of names"),
        ('{"type": "string", "minLength": -1}', "minLength is a number from 0"),
        ('{"items": {}, "maxItems": 1e9}', "maxItems is a number from 0"),
        ('{"type": "string", "minLength": 3, "maxLength": 2}', "minLength is 3, more than maxLength"),
        ('{"type": []}', "type is a list with something in it"),
        ('{"items": ' * 3000 + "{}" + "}" * 3000, "nested too deeply"),
        ('{"type": "object", "required": ["a"], "additionalProperties": false}', "required: a"),
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Grammar(text)


keywords = st.sampled_from(
    ["type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "title"]
)
nonsense = st.recursive(
    leaves | st.sampled_from(["object", "array", "#", "#/items"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=3),
)


@unhurried
@given(nonsense)
def test_nonsense_is_refused_or_followed(schema: Any) -> None:
    try:
        grammar = Grammar(json.dumps(schema))
    except ValueError:
        return
    made = json.loads(text_of(generated(grammar, 0, 5000)))
    assert valid(schema, made, schema)
