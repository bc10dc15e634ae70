from __future__ import annotations

import math
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from enginehouse_sim.simulator.model.text import EOS, WORDS, TextSampler, encode, text_of, token_id
from tests.support.sampled_text import generate

texts = st.text(st.characters(exclude_categories=["Cs"]))
seeds = st.integers(0, 2**32)


def answer(place: TextSampler, length: int) -> list[int]:
    return [place.next() for _ in range(length)]


@given(texts)
def test_text_and_tokens_turn_into_each_other(text: str) -> None:
    assert text_of(encode(text)) == text


@given(texts)
def test_tokens_cut_again_are_the_same_tokens(text: str) -> None:
    ids = encode(text)
    assert encode(text_of(ids)) == ids


@given(seeds, texts, st.integers(0, 20), st.integers(0, 3))
def test_tokens_so_far_and_text_so_far_lead_to_the_same_rest(seed: int, prompt: str, cut: int, choice: int) -> None:
    ids = encode(prompt)
    whole = answer(TextSampler(seed, text_of(ids), choice), 25)
    so_far = ids + whole[:cut]
    assert answer(TextSampler(seed, text_of(so_far), choice), 25 - cut) == whole[cut:]
    assert answer(TextSampler(seed, text_of(so_far), choice), 25 - cut) == whole[cut:]
    assert [token_id(piece) for piece in islice(generate(seed, prompt, choice), 25)] == whole


@given(seeds, texts)
def test_a_prompt_and_its_answer_cut_again_are_the_same_tokens(seed: int, prompt: str) -> None:
    ids = encode(prompt)
    whole = ids + answer(TextSampler(seed, text_of(ids)), 10)
    assert encode(text_of(whole)) == whole


@given(seeds, st.lists(st.integers(-5, 2**60), max_size=20), st.integers(0, 10))
def test_numbers_that_are_no_tokens_can_be_continued_too(seed: int, ids: list[int], cut: int) -> None:
    whole = answer(TextSampler(seed, text_of(ids)), 10)
    assert answer(TextSampler(seed, text_of(ids + whole[:cut])), 10 - cut) == whole[cut:]
    assert answer(TextSampler(seed, text_of(ids + whole[:cut])), 10 - cut) == whole[cut:]


@given(seeds, texts, st.lists(texts, max_size=5))
def test_tokens_that_another_chose_lead_where_the_text_leads(seed: int, prompt: str, more: list[str]) -> None:
    place = TextSampler(seed, prompt)
    for token in encode("".join(more)):
        place.push(token)
    assert answer(place, 5) == answer(TextSampler(seed, prompt + "".join(more)), 5)


def test_no_word_is_longer_than_a_token() -> None:
    assert all(encode(word) == [token_id(word)] and encode(f" {word}") == [token_id(f" {word}")] for word in WORDS)


def test_an_answer_has_no_end_unless_asked() -> None:
    assert EOS not in answer(TextSampler(0, "hello"), 10_000)


def test_the_end_of_an_answer_has_no_text() -> None:
    assert text_of([EOS]) == ""
    assert EOS not in encode("any text \0\1")


def length(seed: int, mean_length: int) -> int:
    place = TextSampler(seed, "hello", mean_length=mean_length)
    return next(number for number in range(1, 100_000) if place.next() == EOS)


def test_answers_have_the_length_asked_for_on_average() -> None:
    assert 40 < sum(length(seed, 50) for seed in range(500)) / 500 < 60


@given(seeds, st.integers(1, 30))
def test_an_answer_ends_at_the_same_place_wherever_it_was_cut(seed: int, cut: int) -> None:
    whole = answer(TextSampler(seed, "hello", mean_length=20), 60)
    whole = whole[: whole.index(EOS) + 1] if EOS in whole else whole
    so_far = encode("hello") + whole[:cut]
    rest = answer(TextSampler(seed, text_of(so_far), mean_length=20), max(0, len(whole) - cut))
    assert rest == whole[cut:]


def test_an_answer_that_may_not_end_yet_continues() -> None:
    place = TextSampler(0, "hello", mean_length=1)
    assert place.next(may_end=False) != EOS
    assert place.next() == EOS


@given(seeds, st.integers(1, 20))
def test_logprobs_are_those_of_a_distribution_with_the_token_first(seed: int, count: int) -> None:
    place = TextSampler(seed, "hello")
    [(_, logprob)] = place.alternatives(0, 1)
    found = place.alternatives(place.copy().next(), count)
    assert found == TextSampler(seed, "hello").alternatives(found[0][0], count)
    assert found[0] == (place.next(), logprob)
    assert len({token for token, _ in found}) == count
    assert [one for _, one in found] == sorted((one for _, one in found), reverse=True)
    assert sum(math.exp(one) for _, one in found) <= 1 + 1e-9


@given(seeds, st.sampled_from(encode('{ } " : , 1 2 a b steel wheel')))
def test_after_a_token_of_a_grammar_the_answer_is_that_after_its_text(seed: int, token: int) -> None:
    place = TextSampler(seed, "hello")
    assert place.pick(frozenset((token,))) == token
    assert answer(place, 3) == answer(TextSampler(seed, "hello" + text_of([token])), 3)


def test_drafts_are_right_as_often_as_asked() -> None:
    place, right = TextSampler(0, "hello"), 0
    for _ in range(2000):
        right += place.copy().draft(0.7) == place.next()
    assert 0.65 < right / 2000 < 0.75
