from __future__ import annotations

from copy import deepcopy

import pytest

from enginehouse_kit.prefix_index import PrefixIndex


@pytest.mark.parametrize(("chunks", "leading"), [([1, 2, 3], 3), ([1, 2, 4], 2), ([4, 1, 2], 0), ([], 0)])
def test_only_leading_chunks_count(chunks: list[int], leading: int) -> None:
    index = PrefixIndex()
    index.note("a", [1, 2, 3], 10)
    assert index.leading("a", chunks) == leading
    assert index.leading("b", chunks) == 0


def test_the_ends_of_old_prompts_are_forgotten_first() -> None:
    index = PrefixIndex()
    index.note("a", [1, 2, 3], 4)
    index.note("a", [1, 7, 8], 4)
    assert index.leading("a", [1, 7, 8]) == 3
    assert index.leading("a", [1, 2, 3]) == 2


def test_what_was_read_again_stays() -> None:
    index = PrefixIndex()
    for chunks in ([1, 2], [3, 4], [1, 2], [5]):
        index.note("a", chunks, 4)
    assert (index.leading("a", [1, 2]), index.leading("a", [3, 4])) == (2, 1)


def test_a_prompt_beyond_the_limit_keeps_its_beginning() -> None:
    index = PrefixIndex()
    index.note("a", [1, 2, 3, 4], 2)
    assert index.leading("a", [1, 2, 3, 4]) == 2


def test_engines_are_forgotten() -> None:
    index = PrefixIndex()
    for engine in "abc":
        index.note(engine, [1], 5)
    index.forget("a")
    index.forget("unknown")
    index.keep_only({"a", "b"})
    assert [index.leading(engine, [1]) for engine in "abc"] == [0, 1, 0]


def test_a_copy_learns_for_itself() -> None:
    index = PrefixIndex()
    index.note("a", [1], 5)
    copied = deepcopy(index)
    copied.note("a", [1, 2], 5)
    copied.note("b", [1], 5)
    assert (index.leading("a", [1, 2]), index.leading("b", [1]), copied.leading("a", [1, 2])) == (1, 0, 2)
