"""Engines that find too little memory, although their swapper thought that there is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.operated_gateway import OperatedGateway, Serve, Stage

NOTHING_MUST_GO = '[scheduling]\nswapper = "memory"\n'
Crowded = Callable[[], OperatedGateway]


@pytest.fixture
def crowded(serve: Serve, stage: Stage) -> Crowded:
    """A gateway with the models a, b and c, of which a and b are loaded, and no memory for a third."""

    def open_gateway() -> OperatedGateway:
        gateway = serve(NOTHING_MUST_GO + stage.table("a") + stage.table("b") + stage.table("c"))
        stage.open()
        stage.limit(2)
        assert [gateway.ask(model).status_code for model in "ab"] == [200, 200]
        return gateway

    return open_gateway


def test_a_model_that_finds_too_little_memory_is_loaded_once_the_others_have_stopped(crowded: Crowded) -> None:
    gateway = crowded()
    answers = [gateway.asking("c"), gateway.asking("c", stream=True)]
    assert [answer.result().status_code for answer in answers] == [200, 200]
    assert gateway.history()[4:6] == ["c starting", "c failed"]
    assert gateway.history()[-2:] == ["c starting", "c ready"]
    assert {*gateway.history()[6:-2]} == {"a stopping", "a stopped", "b stopping", "b stopped"}
    assert gateway.running() == {"c": "ready"}
    assert gateway.ask("a").status_code == 200
    assert gateway.running() == {"a": "ready", "c": "ready"}, "there is room for two"


def test_a_busy_model_ends_its_work_before_it_makes_room(crowded: Crowded, stage: Stage) -> None:
    gateway = crowded()
    with stage.mute():
        serving = gateway.asking("b")
        gateway.until(lambda _: [each["phase"] for each in gateway.requests()] == ["serving"])
        waiting = gateway.asking("c")
        gateway.until(lambda _: "c failed" in gateway.history())
        assert [(each["model"], each["phase"]) for each in gateway.requests()] == [("b", "serving"), ("c", "queued")]
    assert [serving.result().status_code, waiting.result().status_code] == [200, 200]
    assert gateway.running() == {"c": "ready"}


def test_pinned_models_are_not_stopped_even_so(serve: Serve, stage: Stage) -> None:
    gateway = serve(NOTHING_MUST_GO + stage.table("a", pin="true") + stage.table("c"))
    stage.open()
    stage.limit(1)
    assert gateway.ask("a").status_code == 200
    answer = gateway.ask("c")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert "out of memory" in answer.json()["error"]["message"]
    assert gateway.loads("c") == 1
    assert gateway.running() == {"a": "ready"}


def test_a_model_that_does_not_even_fit_alone_is_tried_twice_and_refused(crowded: Crowded, stage: Stage) -> None:
    gateway = crowded()
    stage.limit(0)
    answer = gateway.ask("c")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert gateway.loads("c") == 2
    assert gateway.ask("c").status_code == 503, "after a pause it is tried again"
    assert "times in a row and is not tried again" in gateway.ask("c").json()["error"]["message"]
