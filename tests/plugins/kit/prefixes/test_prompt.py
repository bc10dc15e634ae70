from __future__ import annotations

from itertools import product

from enginehouse_kit.prefixes import Prompt

COARSE = 4 * Prompt.COARSE_TOKENS
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
