"""Nothing blocks: what waits for a load keeps nobody else waiting, and everybody can see who waits for what."""

from __future__ import annotations

import time
from concurrent.futures import as_completed
from itertools import groupby
from typing import Any

import pytest

LOAD_S, ANSWER_S = 0.9, 0.05
"""What would be 90 and 5 seconds with an engine of some size."""
TWO_HOSTS = '[hosts.one]\n[hosts.two]\n[scheduling]\nswapper = "memory"\n'


@pytest.fixture
def paced(sim: Any) -> Any:
    def table(name: str, host: str) -> str:
        text: str = sim(name, f"{LOAD_S}s", f"{ANSWER_S}s", host=f'"{host}"')
        return text

    return table


def test_a_request_for_a_model_that_is_not_loaded_is_seen_to_wait_for_its_load(house: Any, paced: Any) -> None:
    home = house(TWO_HOSTS + paced("a", "one"))
    began = time.monotonic()
    answer = home.asking("a")
    seen = []
    while not answer.done():
        seen += [(each["model"], each["phase"], each["replica"]) for each in home.requests()]
    assert time.monotonic() - began >= LOAD_S + ANSWER_S
    assert answer.result().status_code == 200
    assert [each for each, _ in groupby(seen)] == [("a", "loading", "a@a"), ("a", "serving", "a@a")]
    assert home.requests() == []


def test_loads_of_one_host_go_one_after_the_other_and_hold_up_nobody_else(house: Any, paced: Any) -> None:
    home = house(TWO_HOSTS + paced("a", "one") + paced("c", "one") + paced("b", "two"))
    home.operate("/api/models/b/load")
    began = time.monotonic()
    asked = {home.asking(model): model for model in "abc"}
    took = {asked[answer]: time.monotonic() - began for answer in as_completed(asked) if answer.result().is_success}
    loaded, first, second = took  # a and c are asked for at once: either may be first
    assert loaded == "b"
    assert took["b"] < LOAD_S, "it waits for nobody's load"
    assert home.history()[2:] == [f"{name} {state}" for name in (first, second) for state in ("starting", "ready")]
    assert (took[first] >= LOAD_S, took[second] >= 2 * LOAD_S) == (True, True)


def test_different_hosts_load_at_the_same_time(house: Any, stage: Any) -> None:
    home = house(TWO_HOSTS + stage.sim("a", host='"one"') + stage.sim("b", host='"two"'))
    answers = [home.asking(model) for model in "ab"]
    home.until_running(a="starting", b="starting")
    stage.open()
    assert [answer.result().status_code for answer in answers] == [200, 200]


def test_who_waits_is_shown_with_its_queue_and_its_place(house: Any, stage: Any) -> None:
    home = house(TWO_HOSTS + "".join(stage.sim(name, host='"one"') for name in "abc"))
    answers = []
    for model in "abac":
        answers.append(home.asking(model))
        home.until_asked(len(answers))
    told = [(each["model"], each["phase"], each["position"]) for each in home.requests()]
    assert told == [("a", "loading", 0), ("b", "queued", 2), ("a", "loading", 1), ("c", "queued", 3)]
    stage.open()
    assert {answer.result().status_code for answer in answers} == {200}
    assert [change for change in home.history() if "starting" in change] == ["a starting", "b starting", "c starting"]
