from __future__ import annotations

from itertools import islice, product

from hypothesis import given
from hypothesis import strategies as st

from enginehouse_sim.simulator.model.text import WORDS, TextSampler, count_tokens, encode, piece_of, text_of, token_id
from enginehouse_sim.simulator.replay.traces.prompts import prompt_of
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from tests.support.sampled_text import generate

texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_the_text_is_the_same_in_every_process_and_version() -> None:
    assert "".join(islice(generate(0, "hello"), 5)) == " snow river cab bolt main"
    assert "".join(islice(generate(1, "hello"), 5)) != " snow river cab bolt main"


@given(texts, st.integers(), st.integers(0, 20))
def test_a_continuation_of_the_text_so_far_is_the_rest_of_the_same_answer(prompt: str, seed: int, cut: int) -> None:
    whole = list(islice(generate(seed, prompt), 25))
    rest = list(islice(generate(seed, prompt + "".join(whole[:cut])), 25 - cut))
    assert whole[cut:] == rest


def test_choices_differ() -> None:
    first, second = (list(islice(generate(0, "hello", choice), 10)) for choice in (0, 1))
    assert first != second


def test_a_word_begins_with_a_space_unless_the_text_ends_with_one() -> None:
    assert next(generate(0, "one")).startswith(" ")
    assert next(generate(0, "one\n")) in WORDS
    assert next(generate(0, "")) in WORDS


@given(st.integers(0, 2**32))
def test_every_made_up_token_is_one_token_when_read_back(seed: int) -> None:
    made = list(islice(generate(seed, ""), 20))
    assert [piece_of(token) for token in encode("".join(made))] == made


@given(texts)
def test_token_ids_and_text_turn_into_each_other(text: str) -> None:
    ids = encode(text)
    found = [piece_of(token) for token in ids]
    assert [token_id(piece) for piece in found] == ids
    assert "".join(found) == text
    assert count_tokens(text) == len(ids)
    assert text_of(ids) == text
    assert all(1 < one < 2**31 for one in ids)


@given(st.lists(st.integers()))
def test_numbers_that_are_no_tokens_still_make_text(ids: list[int]) -> None:
    assert isinstance(text_of(ids), str)


@given(st.integers(2, 0xD7FF), st.integers(2, 0xD7FF))
def test_token_ids_that_stand_for_different_characters_get_different_answers(one: int, other: int) -> None:
    assert (text_of([one]) == text_of([other])) == (one == other)
    assert text_of([one, other]) not in (text_of([one]), text_of([other]))


def test_no_two_prompts_of_token_ids_share_an_answer() -> None:
    few = product((5, 6, 100, 200, 1000, 70_000, 2**28, 2**31 - 1), repeat=3)
    prompts = {*few, *((one,) for one in range(2, 3000)), *product(range(40, 80), repeat=2)}
    trace = TraceRequest(arrival=0, input_length=9, output_length=1)
    prompts |= {tuple(prompt_of(trace, number)) for number in (*range(2000), *range(10**6, 10**6 + 2000))}
    samplers = [TextSampler(0, text_of(prompt)) for prompt in prompts]
    answers = {tuple(sampler.next() for _ in range(12)) for sampler in samplers}
    assert len(answers) == len(prompts) > 9000
