from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate
from enginehouse_kit.testing import candidate, requirements
from enginehouse_routing.strategies import Session


def session(bound: float = 1.25) -> Session:
    return Session(Session.Config(bound=bound, seed=1))


def fleet(number: int, pending: int = 0) -> list[Candidate]:
    return [candidate(f"gpu-{n}", pending=pending) for n in range(number)]


def place(name: str, candidates: list[Candidate]) -> str:
    return session().pick(requirements(session=name), candidates).backend


def test_a_session_stays_and_sessions_spread() -> None:
    places = {f"s{n}": place(f"s{n}", fleet(4)) for n in range(400)}
    assert places == {name: place(name, fleet(4)[::-1]) for name in places}
    assert all(70 < count < 130 for count in Counter(places.values()).values())


def test_an_engine_that_goes_moves_only_its_own_sessions() -> None:
    before = {f"s{n}": place(f"s{n}", fleet(4)) for n in range(100)}
    after = {name: place(name, fleet(3)) for name in before}
    assert {name for name in before if before[name] != after[name]} == {n for n in before if before[n] == "gpu-3"}


def test_requests_without_a_session_go_where_the_fewest_are() -> None:
    candidates = fleet(3, pending=2)
    candidates[1].load.end()
    assert place("", candidates) == "gpu-1"


@given(number=st.integers(1, 8), requests=st.integers(1, 100))
def test_one_session_never_takes_more_than_the_bound(number: int, requests: int) -> None:
    candidates, strategy = fleet(number), session(1.5)
    for _ in range(requests):
        strategy.pick(requirements(session="one"), candidates).load.begin()
    assert max(each.load.pending for each in candidates) <= math.ceil(1.5 * requests / number)
