from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.grammar import JSON_OBJECT, GrammarManager, valid_tokens
from enginehouse_sim.simulator.model.text import EOS, encode, text_of
from tests.support.asked import new_state


def request(
    request_id: str = "a", grammar: str | None = JSON_OBJECT, max_tokens: int = 50, min_tokens: int = 0
) -> RequestState:
    return new_state(
        request_id=request_id,
        prompt_token_ids=[300],
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        structured_output=grammar,
    )


def ready(manager: GrammarManager, one: RequestState) -> RequestState:
    assert manager.is_ready(one)
    return one


@pytest.fixture
def manager() -> GrammarManager:
    return GrammarManager()


def test_a_grammar_that_cannot_be_compiled_concerns_its_own_request_only(manager: GrammarManager) -> None:
    bad, good = request("bad", '{"type": "text"}'), request("good")
    for _ in range(2):
        with pytest.raises(ValueError, match="The grammar cannot be compiled: Invalid enum value 'text'"):
            manager.is_ready(bad)
    ready(manager, good)
    first, rows = manager.grammar_bitmask([bad, good], {})
    assert first == {"good": 0}
    assert len(rows) == 1


def test_free_text_has_no_rows(manager: GrammarManager) -> None:
    free = ready(manager, request(grammar=None))
    assert not manager.should_advance(free)
    assert manager.grammar_bitmask([free], {}) == ({}, [])


def test_a_request_that_comes_with_an_answer_that_is_not_allowed_is_refused(manager: GrammarManager) -> None:
    one = request()
    one.append(encode("[")[0])
    with pytest.raises(ValueError, match="does not allow the answer that it has so far"):
        manager.is_ready(one)


def test_a_finished_request_is_removed(manager: GrammarManager) -> None:
    one = ready(manager, request())
    manager.finished(one)
    manager.finished(one)
    assert not manager.should_advance(one)
    manager.finished(one)
    assert manager.grammar_bitmask([one], {}) == ({}, [])


def test_answers_made_from_the_rows_are_of_the_grammar(manager: GrammarManager) -> None:
    schema = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    requests = [ready(manager, request("a")), ready(manager, request("b", schema))]
    while going := [one for one in requests if EOS not in one.output_token_ids]:
        first, rows = manager.grammar_bitmask(going, {})
        for one in going:
            [token] = rows[first[one.request_id]]
            one.append(token)
            assert manager.accept_tokens(one, [token])
    texts = [text_of(one.output_token_ids) for one in requests]
    assert isinstance(json.loads(texts[0]), dict)
    assert json.loads(texts[1])["ok"] in (True, False)


def test_a_token_that_is_not_allowed_is_refused(manager: GrammarManager) -> None:
    one = ready(manager, request())
    one.append(encode("x")[0])
    assert not manager.accept_tokens(one, encode("x"))


def test_drafts_are_cut_at_the_first_that_is_not_allowed(manager: GrammarManager) -> None:
    one, text = ready(manager, request()), list(valid_tokens(JSON_OBJECT))
    assert manager.validate_tokens(one, [*text[:3], 7, text[3]]) == text[:3]
    assert manager.validate_tokens(one, text[:2]) == text[:2]


def test_each_draft_has_its_row_and_there_is_one_behind_them(manager: GrammarManager) -> None:
    other, one = ready(manager, request("b")), ready(manager, request())
    text = valid_tokens(JSON_OBJECT)
    first, rows = manager.grammar_bitmask([other, one], {"a": text[:2]})
    assert first == {"b": 0, "a": 1}
    assert [[*row] for row in rows] == [[text[0]], [text[0]], [text[1]], [text[2]]]


def test_a_request_that_comes_with_outputs_continues_after_them(manager: GrammarManager) -> None:
    one = request()
    for token in valid_tokens(JSON_OBJECT)[:-1]:
        one.append(token)
    ready(manager, one)
    assert manager.grammar_bitmask([one], {})[1] == [frozenset((EOS,))]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", 3]}}, "required": ["a", "c"]},
        {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 3, "maxItems": 3},
        {"type": "string", "minLength": 40, "maxLength": 41},
        {"type": "string", "maxLength": 2},
        {"anyOf": [{"type": "null"}, {"const": 1}]},
        {"const": {"deep": [1, 2.5, True]}},
        {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}},
        {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
        {"additionalProperties": {"type": "boolean"}},
        {},
    ],
)
def test_the_text_of_a_schema_is_valid(schema: dict[str, Any]) -> None:
    *tokens, last = valid_tokens(json.dumps(schema))
    assert last == EOS
    jsonschema.validate(json.loads(text_of(tokens)), schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"pattern": "x"}, "unknown field `pattern`"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "required: a"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "contains itself without end"),
        ({"$ref": "#/no"}, "there is no #/no"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength is 3"),
        ({"enum": ["a"], "type": "integer"}, "none of the values"),
        ({"type": "array", "minItems": 9999}, "`int` <= 5000"),
        ([], "Expected `object`"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        valid_tokens(json.dumps(schema))
