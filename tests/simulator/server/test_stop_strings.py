from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enginehouse_sim.simulator.server.runs import StopStrings

letters = st.text("ab", max_size=4)
STOPS = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1)


@given(st.lists(letters, min_size=1), STOPS, st.booleans())
def test_an_answer_ends_at_the_first_stop_string_however_it_is_cut(
    parts: list[str], stops: list[str], include: bool
) -> None:
    follower = StopStrings(stops, include)
    shown, seen = "", ""
    for number, part in enumerate(parts, start=1):
        text, stop = follower.feed(part, last=number == len(parts))
        shown, seen = shown + text, seen + part
        if stop is not None:
            break
    at, first = min(((seen.find(stop), stop) for stop in stops if stop in seen), default=(len(seen), None))
    assert stop == first
    assert shown == seen[: at + len(first or "") * include]


@given(st.lists(letters, min_size=1), STOPS)
def test_text_in_which_nothing_is_looked_for_is_shown_and_does_not_count(parts: list[str], stops: list[str]) -> None:
    skipped, again = StopStrings(stops), StopStrings(stops)
    for part in parts:
        assert skipped.skip(part) == part
        assert skipped.feed(part, last=True) == again.feed(part, last=True)
        skipped, again = StopStrings(stops), StopStrings(stops)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    follower = StopStrings(["stop"])
    assert follower.feed("go st", last=False) == ("go", None)
    assert follower.feed("eam", last=False) == (" st", None)
    assert follower.feed("!", last=True) == ("eam!", None)
