from __future__ import annotations

import json

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.grammar.grammar import JSON_OBJECT
from enginehouse_sim.simulator.grammar.manager import GrammarManager
from enginehouse_sim.simulator.model.sampler import TextSampler
from enginehouse_sim.simulator.model.text import EOS, encode, text_of


def request(
    request_id: str = "a", grammar: str | None = JSON_OBJECT, max_tokens: int = 50, min_tokens: int = 0
) -> RequestState:
    return RequestState(
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
        with pytest.raises(ValueError, match="The grammar cannot be compiled: type: there is no 'text'"):
            manager.is_ready(bad)
    ready(manager, good)
    first, rows = manager.grammar_bitmask([bad, good], {})
    assert first == {"good": 0}
    assert len(rows) == 1


def test_free_text_has_no_rows(manager: GrammarManager) -> None:
    free = ready(manager, request(grammar=None))
    assert not manager.should_advance(free)
    assert manager.grammar_bitmask([free], {}) == ({}, [])


def test_answers_made_from_the_rows_are_of_the_grammar(manager: GrammarManager) -> None:
    schema = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    requests = [ready(manager, request("a")), ready(manager, request("b", schema))]
    places = {one.request_id: TextSampler(0, one.request_id) for one in requests}
    while going := [one for one in requests if EOS not in one.output_token_ids]:
        first, rows = manager.grammar_bitmask(going, {})
        for one in going:
            token = places[one.request_id].pick(rows[first[one.request_id]])
            assert manager.accept_tokens(one, [token])
            one.append(token)
    texts = [text_of(one.output_token_ids) for one in requests]
    assert isinstance(json.loads(texts[0]), dict)
    assert json.loads(texts[1])["ok"] in (True, False)


def test_an_answer_is_closed_before_its_last_token(manager: GrammarManager) -> None:
    one = ready(manager, request(max_tokens=7))
    for token in encode('{"a":'):
        assert manager.accept_tokens(one, [token])
        one.append(token)
    _, [row] = manager.grammar_bitmask([one], {})
    assert row == set(encode("0"))


def test_tokens_are_accepted_together_or_not_at_all(manager: GrammarManager) -> None:
    one = ready(manager, request())
    assert not manager.accept_tokens(one, encode("{]"))
    assert manager.accept_tokens(one, encode("{}"))
    assert manager.accept_tokens(one, [EOS])


def test_drafts_are_cut_at_the_first_that_is_not_allowed_and_nothing_changes(manager: GrammarManager) -> None:
    one = ready(manager, request())
    drafts = encode('{"a":]')
    assert manager.validate_tokens(one, drafts) == drafts[:5]
    assert manager.validate_tokens(one, drafts) == drafts[:5]


def test_each_draft_has_its_row_and_there_is_one_behind_them(manager: GrammarManager) -> None:
    other, one = ready(manager, request("b")), ready(manager, request())
    first, rows = manager.grammar_bitmask([other, one], {"a": encode('{"')})
    assert first == {"b": 0, "a": 1}
    assert len(rows) == 4
    assert rows[0] == rows[1] == set(encode("{"))
    assert encode("steel")[0] in rows[3]
    assert manager.grammar_bitmask([one], {})[1] == [rows[1]]


def test_an_answer_is_not_ended_before_min_tokens_if_it_can_go_on(manager: GrammarManager) -> None:
    for min_tokens, may_end in ((2, False), (1, True)):
        one = ready(manager, request(grammar='{"type": "number"}', min_tokens=min_tokens))
        [token] = encode("12")
        assert manager.accept_tokens(one, [token])
        one.append(token)
        _, [row] = manager.grammar_bitmask([one], {})
        assert (EOS in row) == may_end


def test_a_request_that_comes_with_outputs_continues_after_them(manager: GrammarManager) -> None:
    one = request()
    for token in encode('{"a":1}'):
        one.append(token)
    ready(manager, one)
    _, [row] = manager.grammar_bitmask([one], {})
    assert row == {EOS}


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
