"""Engines that find too little memory, although their swapper thought that there is enough."""

from __future__ import annotations

from typing import Any

import pytest

NOTHING_MUST_GO = '[scheduling]\nswapper = "memory"\n'


@pytest.fixture
def crowded(house: Any, stage: Any) -> Any:
    """A gateway with the models a, b and c, of which a and b are loaded, and no memory for a third."""

    def open_house(**settings: str) -> Any:
        home = house(NOTHING_MUST_GO + stage.sim("a") + stage.sim("b", **settings) + stage.sim("c"))
        stage.open()
        stage.limit(2)
        assert [home.ask(model).status_code for model in "ab"] == [200, 200]
        return home

    return open_house


def test_a_model_that_finds_too_little_memory_is_loaded_once_the_others_are_gone(crowded: Any) -> None:
    home = crowded()
    answers = [home.asking("c"), home.asking("c", stream=True)]
    assert [answer.result().status_code for answer in answers] == [200, 200]
    assert home.history()[4:6] == ["c starting", "c failed"]
    assert home.history()[-2:] == ["c starting", "c ready"]
    assert {*home.history()[6:-2]} == {"a stopping", "a stopped", "b stopping", "b stopped"}
    assert home.running() == {"c": "ready"}
    assert home.ask("a").status_code == 200
    assert home.running() == {"a": "ready", "c": "ready"}, "there is room for two"


def test_a_busy_model_ends_its_work_before_it_makes_room(crowded: Any) -> None:
    home = crowded(ttft="1s")
    serving = home.asking("b")
    home.gateway.until(lambda _: [each["phase"] for each in home.requests()] == ["serving"])
    waiting = home.asking("c")
    home.gateway.until(lambda _: "c failed" in home.history())
    assert [(each["model"], each["phase"]) for each in home.requests()] == [("b", "serving"), ("c", "queued")]
    assert [serving.result().status_code, waiting.result().status_code] == [200, 200]
    assert home.running() == {"c": "ready"}


def test_pinned_models_are_not_stopped_even_so(house: Any, stage: Any) -> None:
    home = house(NOTHING_MUST_GO + stage.sim("a", pin="true") + stage.sim("c"))
    stage.open()
    stage.limit(1)
    assert home.ask("a").status_code == 200
    answer = home.ask("c")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert "out of memory" in answer.json()["error"]["message"]
    assert home.loads("c") == 1
    assert home.running() == {"a": "ready"}


def test_a_model_that_does_not_even_fit_alone_is_tried_twice_and_refused(crowded: Any, stage: Any) -> None:
    home = crowded()
    stage.limit(0)
    answer = home.ask("c")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert home.loads("c") == 2
    assert "failed 2 times in a row and is left alone for 2 s" in home.ask("c").json()["error"]["message"]
