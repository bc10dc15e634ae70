from __future__ import annotations

import msgspec
import pytest

from enginehouse.rescheduling import RequestView
from enginehouse_kit.selection import MIGRATION_ORDERS, MIGRATION_RULES, migration_budget, select_requests


def running(name: str, tokens: int, output: int = 1) -> RequestView:
    return RequestView(id=name, prompt_tokens=tokens - output, output_tokens=output)


def waiting(name: str, tokens: int) -> RequestView:
    return RequestView(id=name, prompt_tokens=tokens, running=False)


REQUESTS = [running("a", 300), running("b", 900, 5), running("c", 500, 2), waiting("w", 400), waiting("x", 100)]


def chosen(rule: str, order: str, budget: int) -> str:
    return "".join(select_requests(REQUESTS, rule, order, budget))


@pytest.mark.parametrize(
    ("order", "first_two"),
    [("LCR", "cb"), ("FCR", "ab"), ("LR", "bc"), ("SR", "ac"), ("FCW", "wx"), ("FCWSR", "wx")],
)
def test_each_order(order: str, first_two: str) -> None:
    assert chosen("NUM_REQ", order, 2) == first_two


def test_waiting_requests_first_and_then_the_shortest_running_ones() -> None:
    assert chosen("NUM_REQ", "FCWSR", 4) == "wxac"
    assert chosen("TOKEN", "FCWSR", 900) == "wxa"


@pytest.mark.parametrize("order", MIGRATION_ORDERS)
def test_minus_one_is_everything_whatever_the_order(order: str) -> None:
    assert chosen("NUM_REQ", order, -1) == "abcwx"


def test_the_last_one_selected_may_go_beyond_the_budget() -> None:
    requests = [running("a", 300), running("b", 500), running("c", 600)]
    assert select_requests(requests, "TOKEN", "FCR", 1024) == ["a", "b", "c"]


def test_what_alone_costs_more_than_the_budget_stays() -> None:
    assert chosen("TOKEN", "FCR", 600) == "ac"
    assert chosen("RATIO", "LR", 899) == "ca"


def test_what_runs_and_has_made_nothing_stays() -> None:
    assert select_requests([running("a", 10, 0), running("b", 10)], "NUM_REQ", "FCR", 2) == ["b"]


@pytest.mark.parametrize("rule", MIGRATION_RULES)
def test_without_a_budget_no_request_moves(rule: str) -> None:
    assert chosen(rule, "SR", 0) == ""


@pytest.mark.parametrize("budget", [-1, 9])
def test_what_says_why_it_stays_is_not_selected(budget: int) -> None:
    stays = msgspec.structs.replace(REQUESTS[0], stays="it wants log probabilities")
    assert select_requests([stays, REQUESTS[1]], "NUM_REQ", "FCR", budget) == ["b"]


def test_the_budget_of_a_ratio_is_a_share_of_the_cache() -> None:
    assert migration_budget("RATIO", 0.25, 1602) == 400
    assert migration_budget("TOKEN", 1024, 1602) == 1024
