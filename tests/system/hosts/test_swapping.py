"""Models that change places, as clients see it."""

from __future__ import annotations

from tests.support.operated_gateway import ADMIN_KEY, Serve, ServeAlone, Stage, table


def test_the_embedded_models_swap(serve_alone: ServeAlone) -> None:
    gateway = serve_alone(None)
    for model in ("sim-small", "sim-large", "sim-small"):
        assert gateway.ask(model).status_code == 200
        assert gateway.running() == {model: "ready"}


def test_requests_of_one_model_share_its_load(serve: Serve, stage: Stage) -> None:
    gateway = serve(stage.table("a"))
    answers = [gateway.asking("a") for _ in range(8)]
    gateway.until_asked(8)
    stage.open()
    assert {answer.result().status_code for answer in answers} == {200}
    assert gateway.loads("a") == 1


def test_a_swap_is_explained(serve: Serve) -> None:
    gateway = serve(table("a") + table("b"))
    gateway.operate("/api/models/a/load")
    for question in ({"target": "b", "running": ["a"]}, {"target": "b"}):
        plan = gateway.http.post("/api/explain/swap", json=question).json()
        assert (plan["evict"], plan["set"]) == (["a"], ["b"])
    assert gateway.http.post("/api/explain/swap", json={"target": "b", "running": []}).json()["evict"] == []
    assert gateway.http.post("/api/explain/swap", json={"target": "c"}).json()["error"]["code"] == "model_not_found"
    assert gateway.http.post("/api/explain/swap", json={}).json()["error"]["code"] == "invalid_request"


def test_an_explained_swap_evicts_what_was_used_least_recently(serve: Serve) -> None:
    memory = '[scheduling]\nswapper = "memory"\n[hosts.local]\nmemory = "2GiB"\n'
    gateway = serve(memory + "".join(table(name, memory='"1GiB"') for name in "abc"))
    for model in "aba":
        assert gateway.ask(model).status_code == 200
    assert gateway.http.post("/api/explain/swap", json={"target": "c"}).json()["evict"] == ["b"]
    assert gateway.ask("c").status_code == 200
    assert gateway.running() == {"a": "ready", "c": "ready"}


def test_the_higher_priority_of_a_key_goes_first(serve: Serve, stage: Stage) -> None:
    keys = "".join(
        f'[[auth.keys]]\nname = "{key}"\nkey = "{key}"\nadmin = true\npriority = {priority}\n'
        for key, priority in ((ADMIN_KEY, 0), ("high", 5))
    )
    gateway = serve(keys + "".join(stage.table(name) for name in "abc"))
    first = gateway.asking("a")
    gateway.until_waiting(a="loading")
    low = gateway.asking("b")
    gateway.until_waiting(b="queued")
    high = gateway.asking("c", key="high")
    gateway.until_waiting(c="queued")
    positions = {each["model"]: each["position"] for each in gateway.requests()}
    assert positions == {"a": 0, "c": 1, "b": 2}
    stage.open()
    assert {answer.result().status_code for answer in (first, low, high)} == {200}
    assert gateway.starts() == ["a", "c", "b"]
