from __future__ import annotations

from itertools import product
from random import Random

from enginehouse import Prompt
from enginehouse.routing.prefixes import prompt

COARSE = 4 * Prompt.COARSE_TOKENS
FINE = 4 * Prompt.FINE_TOKENS
"""Characters."""


def test_the_chunks_of_a_prompt_do_not_depend_on_those_before_it() -> None:
    texts = ["".join(letter * COARSE for letter in letters) for letters in product("abc", repeat=3)]
    first = [Prompt("m", text).coarse for text in texts]
    assert [Prompt("m", text).coarse for text in reversed(texts)] == first[::-1]
    assert Prompt("other", texts[0]).coarse[0] != first[0][0]
    for one, chunks in zip(texts, first, strict=True):
        for other, others in zip(texts, first, strict=True):
            equal = [one[: end * COARSE] == other[: end * COARSE] for end in (1, 2, 3)]
            assert [mine == theirs for mine, theirs in zip(chunks, others, strict=True)] == equal


def test_the_fine_chunks_of_a_prompt_do_not_depend_on_those_before_it() -> None:
    chance = Random(3)
    texts = ["".join(chance.choices("ab", k=3)) for _ in range(60)]
    prompts = ["".join(letter * FINE * chance.randint(1, 3) for letter in text) + "end" for text in texts]
    alone = []
    for text in prompts:
        prompt._cuts.clear()
        alone.append(Prompt("m", text).tail)
    assert [Prompt("m", text).tail for text in prompts] == alone
    assert [len(tail) for tail in alone] == [len(text) // FINE for text in prompts]


def test_the_texts_of_fine_chunks_that_are_kept_are_bounded() -> None:
    for number in range(1500):
        Prompt("m", f"{number:{FINE}}" * 3)
    assert len(prompt._cuts) == 1024
    assert {len(text) for _, text, _ in prompt._cuts.values()} == {3 * FINE}


def test_the_texts_that_are_kept_are_bounded_and_what_is_forgotten_is_found_again() -> None:
    text = "a" * 3 * COARSE
    first = Prompt("m", text).coarse
    for number in range(3):
        Prompt(f"model {number}", "".join(f"{place:{COARSE}}" for place in range(2000)))
    kept = prompt._following
    assert len(kept) == 4096
    assert {len(piece) for piece, _ in kept.values()} == {COARSE}
    assert Prompt("m", text).coarse == first
