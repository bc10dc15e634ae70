"""Models that change places, as clients see it."""

from __future__ import annotations

import collections
from typing import Any

TWO_HOSTS = "[hosts.other]\n"


def test_the_embedded_models_swap(house: Any) -> None:
    home = house()
    for model in ("sim-small", "sim-large", "sim-small"):
        assert home.ask(model).status_code == 200
        assert home.running() == {model: "ready"}


def test_a_loaded_model_is_served_while_another_host_loads(house: Any, sim: Any) -> None:
    home = house(TWO_HOSTS + sim("fast") + sim("slow", "3s", host='"other"'))
    assert home.ask("fast").status_code == 200
    slow = home.asking("slow")
    home.until_waiting(slow="loading")
    assert home.ask("fast").status_code == 200
    assert not slow.done()
    assert home.running() == {"fast": "ready", "slow": "starting"}
    assert slow.result().status_code == 200


def test_requests_of_one_model_share_its_load(house: Any, sim: Any) -> None:
    home = house(sim("a", "500ms"))
    answers = [home.asking("a") for _ in range(8)]
    assert {answer.result().status_code for answer in answers} == {200}
    assert home.loads("a") == 1


def test_a_storm_is_collated(house: Any, sim: Any) -> None:
    home = house("".join(sim(name, "500ms") for name in "abc"))
    answers = [home.asking(model) for model in "abcabc" * 4]
    assert collections.Counter(answer.result().status_code for answer in answers) == {200: 24}
    assert {name: home.loads(name) for name in "abc"} == {"a": 1, "b": 1, "c": 1}
    assert len(home.running()) == 1


def test_a_waiting_request_shows_its_phase_and_position(house: Any, sim: Any) -> None:
    home = house(sim("a", "2s") + sim("b"))
    first = home.asking("a")
    home.until_waiting(a="loading")
    second = home.asking("b")
    home.until_waiting(a="loading", b="queued")
    told = {each["model"]: (each["phase"], each["position"], each["replica"]) for each in home.requests()}
    assert told == {"a": ("loading", 0, "a@a"), "b": ("queued", 1, "b@b")}
    assert [first.result().status_code, second.result().status_code] == [200, 200]


def test_what_a_swap_would_stop_is_explained(house: Any, sim: Any) -> None:
    home = house(sim("a") + sim("b"))
    home.operate("/api/models/a/load")
    for question in ({"target": "b", "running": ["a"]}, {"target": "b"}):
        plan = home.http.post("/api/explain/swap", json=question).json()
        assert (plan["evict"], plan["set"]) == (["a"], ["b"])
    assert home.http.post("/api/explain/swap", json={"target": "b", "running": []}).json()["evict"] == []
    assert home.http.post("/api/explain/swap", json={"target": "c"}).json()["error"]["code"] == "model_not_found"
    assert home.http.post("/api/explain/swap", json={}).json()["error"]["code"] == "invalid_request"


def test_the_higher_priority_of_a_key_goes_first(house: Any, sim: Any) -> None:
    keys = "".join(
        f'[[auth.keys]]\nname = "{name}"\nkey = "{name}"\nadmin = true\npriority = {priority}\n'
        for name, priority in (("low", 0), ("high", 5))
    )
    home = house(keys + "".join(sim(name, "700ms") for name in "abc"), key="low")
    first = home.asking("a")
    home.until_waiting(a="loading")
    low = home.asking("b")
    home.until_waiting(b="queued")
    high = home.asking("c", key="high")
    home.until_waiting(c="queued")
    positions = {each["model"]: each["position"] for each in home.requests()}
    assert positions == {"a": 0, "c": 1, "b": 2}
    assert high.result().status_code == 200
    assert not low.done()
    assert [first.result().status_code, low.result().status_code] == [200, 200]
