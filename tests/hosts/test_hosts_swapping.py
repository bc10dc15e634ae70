"""Models that change places, as clients see it."""

from __future__ import annotations

from typing import Any


def test_the_embedded_models_swap(house: Any) -> None:
    home = house()
    for model in ("sim-small", "sim-large", "sim-small"):
        assert home.ask(model).status_code == 200
        assert home.running() == {model: "ready"}


def test_requests_of_one_model_share_its_load(house: Any, sim: Any) -> None:
    home = house(sim("a", "500ms"))
    answers = [home.asking("a") for _ in range(8)]
    assert {answer.result().status_code for answer in answers} == {200}
    assert home.loads("a") == 1


def test_what_a_swap_would_stop_is_explained(house: Any, sim: Any) -> None:
    home = house(sim("a") + sim("b"))
    home.operate("/api/models/a/load")
    for question in ({"target": "b", "running": ["a"]}, {"target": "b"}):
        plan = home.http.post("/api/explain/swap", json=question).json()
        assert (plan["evict"], plan["set"]) == (["a"], ["b"])
    assert home.http.post("/api/explain/swap", json={"target": "b", "running": []}).json()["evict"] == []
    assert home.http.post("/api/explain/swap", json={"target": "c"}).json()["error"]["code"] == "model_not_found"
    assert home.http.post("/api/explain/swap", json={}).json()["error"]["code"] == "invalid_request"


def test_the_higher_priority_of_a_key_goes_first(house: Any, stage: Any) -> None:
    keys = "".join(
        f'[[auth.keys]]\nname = "{name}"\nkey = "{name}"\nadmin = true\npriority = {priority}\n'
        for name, priority in (("low", 0), ("high", 5))
    )
    home = house(keys + "".join(stage.sim(name) for name in "abc"), key="low")
    first = home.asking("a")
    home.until_waiting(a="loading")
    low = home.asking("b")
    home.until_waiting(b="queued")
    high = home.asking("c", key="high")
    home.until_waiting(c="queued")
    positions = {each["model"]: each["position"] for each in home.requests()}
    assert positions == {"a": 0, "c": 1, "b": 2}
    stage.open()
    assert {answer.result().status_code for answer in (first, low, high)} == {200}
    assert [change for change in home.history() if "starting" in change] == ["a starting", "c starting", "b starting"]
