from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enginehouse_sim.server.stops import StopStrings

letters = st.text("ab", max_size=4)


@given(st.lists(letters, min_size=1), st.lists(st.text("ab", min_size=1, max_size=3)))
def test_an_answer_ends_before_the_first_stop_string_however_it_is_cut(parts: list[str], stops: list[str]) -> None:
    follower = StopStrings(stops)
    shown, stopped, seen = "", False, ""
    for number, part in enumerate(parts, start=1):
        text, stopped = follower.feed(part, last=number == len(parts))
        shown, seen = shown + text, seen + part
        if stopped:
            break
    found = min((at for stop in stops if (at := seen.find(stop)) >= 0), default=None)
    assert stopped == (found is not None)
    assert shown == (seen if found is None else seen[:found])


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    follower = StopStrings(["stop"])
    assert follower.feed("go st", last=False) == ("go", False)
    assert follower.feed("eam", last=False) == (" st", False)
    assert follower.feed("!", last=True) == ("eam!", False)
