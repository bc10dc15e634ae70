"""Chunks of texts are the same, whatever texts came before."""

from __future__ import annotations

from random import Random

import pytest

from enginehouse_kit.prefixes.prompt import KnownTexts, number_of


def chunks(root: int, text: str, size: int) -> list[int]:
    """What a text has that nothing came before."""
    pieces = [text[begin : begin + size] for begin in range(0, len(text) - size + 1, size)]
    return [root := hash((root, number_of(piece))) for piece in pieces]


@pytest.mark.parametrize("size", [1, 3])
def test_prompts_that_begin_alike_grow_part_and_end_early(size: int) -> None:
    chosen, texts, known = Random(size), [""], KnownTexts(size)
    for _ in range(3000):
        beginning = chosen.choice(texts)
        kept = beginning[: chosen.randrange(len(beginning) + 1)]
        text = (kept + "".join(chosen.choices("ab", k=chosen.randrange(40))))[: 40 * size]
        if chosen.random() < 0.1:
            texts = [*texts[-8:], text]
        root = chosen.randrange(2)
        assert known.chunks(root, text, len(text) // size) == chunks(root, text, size)


def test_only_so_many_characters_are_kept_and_what_is_forgotten_is_found_again() -> None:
    known = KnownTexts(2)
    first = known.chunks(0, "abcdef", 3)
    for root in range(1, 4):
        known.chunks(root, "".join(f"{place:4}" for place in range(1000)), 2000)
    kept = [each.text for each in known._runs.values()]
    assert 2 * (4096 - 16) < sum(map(len, kept)) <= 2 * 4096
    assert known.chunks(0, "abcdef", 3) == first


def test_a_conversation_that_grows_has_few_runs_and_prompts_that_part_share_one() -> None:
    known = KnownTexts(1)
    for end in range(1, 33):
        known.chunks(0, "abcdefghijklmnopqrstuvwxyz012345"[:end], end)
    assert [each.text for each in known._runs.values()] == ["abcdefghijklmnop", "qrstuvwxyz012345"]
    known.chunks(0, "abcdefgX", 8)
    assert [each.text for each in known._runs.values()] == ["abcdefg", "qrstuvwxyz012345", "X"]
