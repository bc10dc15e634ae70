"""Whatever happens to requests, in any order: each ends once, its record says what its client got, nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.garbage import without_collector
from tests.support.hypothesis_profiles import always_alike
from tests.support.walked_gateway import Setting, walk

SETTINGS = st.builds(
    Setting,
    engines=st.sampled_from(["ab", "abc"]),
    limit=st.integers(0, 1),
    launched=st.booleans(),
    late=st.booleans(),
    hedges=st.booleans(),
    retries=st.sampled_from([1, 2, 0]),
    gathers=st.booleans(),
    holds=st.sampled_from([True, False]),
    stream=st.sampled_from([True, True, False]),
    continuable=st.sampled_from([True, False]),
    reports=st.booleans(),
    accepts=st.sampled_from([True, False]),
)
NUMBERS = st.lists(st.integers(0, 255), min_size=8, max_size=24)
"""Which of the possible steps follow each other; 0 for none, so that a failure shrinks to the fewest steps."""
FURTHER = ("ask", "accepts", "says a piece", "move")
"""The ends and beginnings of steps that lead to others. Half of all steps are such, so that walks get far."""


@pytest.fixture(autouse=True, scope="module")
def _no_collector() -> Iterator[None]:
    with without_collector():
        yield


@always_alike(120)
@given(SETTINGS, NUMBERS)
def test_any_order(setting: Setting, numbers: list[int]) -> None:
    left = iter(numbers)
    taken: list[str] = []

    def choose(possible: list[str]) -> str | None:
        number = next((number for number in left if number), None)
        if number is None:
            return None
        further = [step for step in possible if step.startswith(FURTHER) or step.endswith(FURTHER)]
        among = further if number % 2 and further else possible
        taken.append(among[number // 2 % len(among)])
        return taken[-1]

    faults = walk(setting, choose)
    assert not faults, taken


def after(setting: Setting, *steps: str) -> list[str]:
    """What must not be after these steps."""
    left = iter(steps)
    return walk(setting, lambda _: next(left, None))


def test_a_stream_that_has_moved_leaves_nothing_to_the_garbage_collector() -> None:
    assert not after(Setting(), "ask", "a says a piece", "move 1 to b", "b says the rest", "b says the rest")


@pytest.mark.parametrize("last", ["3 s pass", "cancel 1", "a breaks", "end all"])
@pytest.mark.parametrize("engines", ["a", "ab"])
def test_a_whole_stream_whose_engine_does_not_end_it_is_served(engines: str, last: str) -> None:
    pieces = ["a says a piece"] * 5
    before = ["refuse new"] if last == "end all" else []
    assert not after(Setting(engines), "ask", *pieces, *before, last)
