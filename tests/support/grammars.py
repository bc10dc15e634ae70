"""Answers made and read by a grammar."""

from __future__ import annotations

from enginehouse_sim.simulator.grammar.grammar import Grammar, Matcher
from enginehouse_sim.simulator.model.sampler import TextSampler
from enginehouse_sim.simulator.model.text import EOS, encode


def accepts(grammar: Grammar, text: str) -> bool:
    matcher = Matcher(grammar)
    return matcher.accept(tokens := encode(text)) == len(tokens) and matcher.accept([EOS]) == 1


def generated(grammar: Grammar, seed: int, max_tokens: int) -> list[int]:
    """The tokens of an answer, with EOS if it ended."""
    matcher, place = Matcher(grammar), TextSampler(seed, "Give me JSON:\n")
    made: list[int] = []
    while len(made) < max_tokens and EOS not in made:
        made.append(place.pick(matcher.row(max_tokens - len(made))))
        assert matcher.accept(made[-1:]) == 1
    return made
