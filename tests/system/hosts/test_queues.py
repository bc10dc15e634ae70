"""A load delays only the requests that need it, and every waiting request is visible."""

from __future__ import annotations

from tests.support.operated_gateway import Serve, Stage, table

TWO_HOSTS = '[hosts.one]\n[hosts.two]\n[scheduling]\nswapper = "memory"\n'


def test_a_request_is_shown_loading_and_then_serving(serve: Serve, stage: Stage) -> None:
    gateway = serve(TWO_HOSTS + stage.table("a", host='"one"'))
    with stage.mute():
        answer = gateway.asking("a")
        gateway.until_waiting(a="loading")
        [loading] = gateway.requests()
        stage.open()
        gateway.until_waiting(a="serving")
        [serving] = gateway.requests()
    assert (loading["replica"], serving["replica"]) == ("a@a", "a@a")
    assert answer.result().status_code == 200
    assert gateway.requests() == []


def test_one_host_loads_one_model_at_a_time_and_delays_no_other_host(serve: Serve, stage: Stage) -> None:
    gateway = serve(TWO_HOSTS + "".join(stage.table(name, host='"one"') for name in "ac") + table("b", host='"two"'))
    answers = [gateway.asking("a")]
    gateway.until_waiting(a="loading")
    answers.append(gateway.asking("c"))
    gateway.until_waiting(c="queued")
    assert gateway.ask("b").status_code == 200, "it waits for no load"
    gateway.until_waiting(a="loading", c="queued")
    stage.open()
    assert [answer.result().status_code for answer in answers] == [200, 200]
    loads = [change for change in gateway.history() if change[0] in "ac"]
    assert loads == ["a starting", "a ready", "c starting", "c ready"]


def test_different_hosts_load_at_the_same_time(serve: Serve, stage: Stage) -> None:
    gateway = serve(TWO_HOSTS + stage.table("a", host='"one"') + stage.table("b", host='"two"'))
    answers = [gateway.asking(model) for model in "ab"]
    gateway.until_running(a="starting", b="starting")
    stage.open()
    assert [answer.result().status_code for answer in answers] == [200, 200]


def test_a_waiting_request_is_shown_with_its_position(serve: Serve, stage: Stage) -> None:
    gateway = serve(TWO_HOSTS + "".join(stage.table(name, host='"one"') for name in "abc"))
    answers = []
    for model in "abac":
        answers.append(gateway.asking(model))
        gateway.until_asked(len(answers))
    told = [(each["model"], each["phase"], each["position"]) for each in gateway.requests()]
    assert told == [("a", "loading", 0), ("b", "queued", 2), ("a", "loading", 1), ("c", "queued", 3)]
    stage.open()
    assert {answer.result().status_code for answer in answers} == {200}
    assert gateway.starts() == ["a", "b", "c"]
