from __future__ import annotations

import pytest

from enginehouse_sim.simulator.llumlet.selection import MigrationCandidate, select

RUNNING = [MigrationCandidate("a", 300, 1), MigrationCandidate("b", 900, 5), MigrationCandidate("c", 500, 2)]
WAITING = [MigrationCandidate("w", 400), MigrationCandidate("x", 100)]


def chosen(rule: str, order: str, budget: int) -> str:
    return "".join(select(RUNNING, WAITING, rule, order, budget))


@pytest.mark.parametrize(
    ("order", "first_two"),
    [("LCR", "cb"), ("FCR", "ab"), ("LR", "bc"), ("SR", "ac"), ("FCW", "wx"), ("FCWSR", "wx")],
)
def test_each_order(order: str, first_two: str) -> None:
    assert chosen("NUM_REQ", order, 2) == first_two


def test_waiting_requests_first_and_then_the_shortest_running_ones() -> None:
    assert chosen("NUM_REQ", "FCWSR", 4) == "wxac"


def test_minus_one_is_everything_whatever_the_order() -> None:
    assert chosen("NUM_REQ", "FCW", -1) == "abcwx"


def test_the_last_one_chosen_may_go_beyond_the_budget() -> None:
    requests = [MigrationCandidate("a", 300, 1), MigrationCandidate("b", 500, 1), MigrationCandidate("c", 600, 1)]
    assert select(requests, [], "TOKEN", "FCR", 1024) == ["a", "b", "c"]


def test_what_alone_costs_more_than_the_budget_stays() -> None:
    assert chosen("TOKEN", "FCR", 600) == "ac"
    assert chosen("RATIO", "LR", 899) == "ca"


def test_what_runs_and_has_made_nothing_stays() -> None:
    assert select([MigrationCandidate("a", 10, 0), MigrationCandidate("b", 10, 1)], [], "NUM_REQ", "FCR", 2) == ["b"]


def test_without_a_budget_no_request_migrates() -> None:
    assert chosen("TOKEN", "SR", 0) == ""
