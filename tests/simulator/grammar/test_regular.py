"""Regular expressions and lists of texts as grammars."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginehouse_sim.simulator.grammar.grammar import Grammar, Matcher, choice_grammar, regex_grammar
from enginehouse_sim.simulator.model.text import EOS, encode, text_of
from tests.support.grammars import accepts, generated

PATTERNS = [
    r"\d{3}-\d{4}",
    r"[a-z]{2,12}(\.[a-z]{2,5})+",
    r"(yes|no|maybe)",
    r"[^x]{3,9}",
    r".*",
    r"[A-Z][a-z]+ (is|was) [0-9]+%",
    r"(foo|bar){1,3}[^a-z]",
]


@settings(deadline=None)
@given(st.sampled_from(PATTERNS), st.integers(0, 2**32))
def test_an_answer_matches_its_pattern_and_has_the_same_tokens_again(pattern: str, seed: int) -> None:
    tokens = generated(Grammar(regex_grammar(pattern)), seed, 60)
    text = text_of(token for token in tokens if token != EOS)
    assert encode(text) == [token for token in tokens if token != EOS]
    assert tokens[-1] == EOS
    assert re.fullmatch(pattern, text, re.DOTALL)


@settings(deadline=None)
@given(st.sampled_from(PATTERNS), st.text("aobfr0x.- %3", max_size=9))
def test_what_is_accepted_matches(pattern: str, text: str) -> None:
    assert accepts(Grammar(regex_grammar(pattern)), text) == bool(re.fullmatch(pattern, text, re.DOTALL))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "not understood"),
        (r"(a)\1", "not understood"),
        ("a{1000}", "counts too far"),
        ("(a{60}){60}", "states"),
        ("[^\\s\\S]", "no text"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Grammar(regex_grammar(pattern))


def test_one_of_several_texts_is_chosen() -> None:
    texts = ["positive", "neg", "negative", "neither, nor"]
    grammar = Grammar(choice_grammar(texts))
    assert {text_of(generated(grammar, seed, 20)[:-1]) for seed in range(40)} == set(texts)
    assert not accepts(grammar, "negativ")


def test_an_empty_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="choice is a list with something in it"):
        Grammar(choice_grammar([]))


def test_a_matcher_that_has_ended_takes_no_more() -> None:
    matcher = Matcher(Grammar(choice_grammar(["no"])))
    assert matcher.accept([*encode("no"), EOS, *encode("x")]) == 2
