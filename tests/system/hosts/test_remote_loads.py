"""Models on servers elsewhere that load on demand: loads are queued, batched, swapped and retried as launches are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_router import FakeRouter
from tests.support.operated_gateway import OperatedGateway, Serve

CHECKS = '[checks]\ninterval = "100ms"\n'


def backend(name: str, router: FakeRouter, **settings: str) -> str:
    """A server on a host of its own, whose models may run together."""
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    table = f'driver = "llamacpp_router"\nurl = "{router.url}"\nhost = "{name}"\n'
    return f"[hosts.{name}]\n[backends.{name}]\n{table}{lines}"


TOGETHER = '[scheduling]\nswapper = "memory"\n'


@pytest.fixture
def router() -> Iterator[FakeRouter]:
    with FakeRouter("a", "b", "c") as router:
        yield router


@pytest.fixture
def other() -> Iterator[FakeRouter]:
    with FakeRouter("b", "d") as router:
        yield router


def known(gateway: OperatedGateway, *models: str) -> OperatedGateway:
    """The gateway, once it knows these models."""
    gateway.until(lambda status: {*models} <= {each["model"] for each in status["replicas"]})
    return gateway


def states(gateway: OperatedGateway) -> dict[str, str]:
    return {each["replica"]: each["state"] for each in gateway.process.status()["replicas"]}


def test_a_model_that_is_not_loaded_is_loaded_for_the_request(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert states(gateway) == {"a@one": "stopped", "b@one": "stopped", "c@one": "stopped"}
    router.open.clear()
    answer = gateway.asking("a")
    gateway.until_waiting(a="loading")
    assert states(gateway)["a@one"] == "starting"
    router.open.set()
    assert answer.result().status_code == 200
    assert (router.loads, router.served) == (["a"], ["a"])
    assert gateway.history() == ["a@one starting", "a@one ready"]


def test_of_what_a_server_lists_the_configured_models_are_loaded(serve: Serve, router: FakeRouter) -> None:
    gateway = serve(CHECKS + backend("one", router, models='["b"]'))
    gateway.process.until_health(one="healthy")
    assert (gateway.ask("b").status_code, gateway.ask("a").status_code) == (200, 404)
    assert states(gateway) == {"b@one": "ready"}
    assert router.loads == ["b"]


def test_what_is_ready_does_not_wait_for_a_load(serve: Serve, router: FakeRouter, other: FakeRouter) -> None:
    """Seed: messages for A (not loaded), B (loaded elsewhere) and C (not loaded) arrive before anything is loaded."""
    gateway = known(serve(CHECKS + TOGETHER + backend("one", router) + backend("two", other)), "a", "d")
    assert gateway.ask("d").status_code == 200
    router.open.clear()
    first = gateway.asking("a")
    gateway.until_waiting(a="loading")
    third = gateway.asking("c")
    gateway.until_waiting(a="loading", c="queued")
    assert gateway.ask("d").status_code == 200
    router.open.set()
    assert [first.result().status_code, third.result().status_code] == [200, 200]
    assert router.loads == ["a", "c"], "one server loads one model after the other"


def test_servers_load_side_by_side(serve: Serve, router: FakeRouter, other: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router) + backend("two", other)), "a", "d")
    router.open.clear()
    other.open.clear()
    answers = [gateway.asking("a"), gateway.asking("d")]
    gateway.until_waiting(a="loading", d="loading")
    router.open.set()
    other.open.set()
    assert [answer.result().status_code for answer in answers] == [200, 200]


def test_requests_for_one_model_share_its_load(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    router.open.clear()
    answers = [gateway.asking("a") for _ in range(5)]
    gateway.until_asked(5)
    router.open.set()
    assert {answer.result().status_code for answer in answers} == {200}
    assert router.loads == ["a"]


def test_too_little_memory_unloads_the_others_and_tries_again(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + TOGETHER + backend("one", router)), "a")
    assert [gateway.ask(model).status_code for model in "ab"] == [200, 200]
    router.room = 2
    assert gateway.ask("c").status_code == 200
    assert router.loads == ["a", "b", "c", "c"]
    assert states(gateway) == {"a@one": "stopped", "b@one": "stopped", "c@one": "ready"}


def test_a_model_that_never_fits_is_refused_with_the_reason(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    router.room = 0
    answer = gateway.ask("a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert "its process ended with status 137" in answer.json()["error"]["message"]


def test_a_load_that_takes_too_long_is_given_up(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router) + '[models.a]\nstart_timeout = "500ms"\n'), "a")
    router.open.clear()
    answer = gateway.ask("a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert "0.5 s" in answer.json()["error"]["message"]
    router.open.set()


def test_the_swapper_unloads_what_makes_room(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert [gateway.ask(model).status_code for model in "aba"] == [200, 200, 200]
    assert router.loads == ["a", "b", "a"]
    assert gateway.running() == {"one": "ready"}


def test_what_others_load_and_unload_is_noticed(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    router.load_by_itself("b")
    gateway.until(lambda _: states(gateway)["b@one"] == "ready")
    assert gateway.ask("b").status_code == 200
    assert router.loads == []
    router.unload_by_itself("b")
    gateway.until(lambda _: states(gateway)["b@one"] == "stopped")
    assert gateway.ask("b").status_code == 200
    assert router.loads == ["b"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_somebody_else_unloaded_is_loaded_for_the_next_request(
    serve: Serve, router: FakeRouter, stream: bool
) -> None:
    checks = '[checks]\ninterval = "1h"\n[routing]\nmax_retries = 0\n'
    gateway = known(serve(checks + TOGETHER + backend("one", router)), "a")
    assert [gateway.ask(model).status_code for model in "ab"] == [200, 200]
    router.unload_by_itself("a")
    router.open.clear()
    answers = [gateway.asking("a", stream=stream) for _ in range(5)]
    gateway.until_waiting(a="loading")
    assert gateway.ask("b").status_code == 200, "nobody else waits for the load"
    router.open.set()
    assert [answer.result().status_code for answer in answers] == [200] * 5
    assert router.loads == ["a", "b", "a"]


@pytest.mark.parametrize(("config", "status"), [("", 200), ('[scheduling]\nnever_load_for = ["/v1/"]\n', 400)])
def test_a_call_to_an_engine_loads_what_somebody_else_unloaded_as_far_as_it_may_load(
    serve: Serve, router: FakeRouter, config: str, status: int
) -> None:
    router.reports = False  # only its answer tells
    gateway = known(serve('[checks]\ninterval = "1h"\n' + config + backend("one", router)), "a")
    assert gateway.ask("a").status_code == 200
    router.unload_by_itself("a")
    answer = gateway.http.post("/upstream/a/v1/chat/completions", json={"model": "a", "messages": []})
    assert answer.status_code == status, answer.text
    assert router.loads == ["a"] * (2 if status == 200 else 1)


def test_a_server_that_keeps_saying_that_its_model_is_not_loaded_is_believed_in_the_end(
    serve: Serve, router: FakeRouter
) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    router.forgetful = True
    answer = gateway.ask("a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert "keeps saying that its model is not loaded" in answer.json()["error"]["message"]


def test_operators_load_and_unload_by_hand_and_an_idle_model_goes(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router) + '[models.b]\nttl = "1s"\n'), "a")
    assert gateway.operate("/api/models/a/load").status_code == 200
    assert router.is_loaded("a")
    assert gateway.operate("/api/models/a/unload").status_code == 200
    assert not router.is_loaded("a")
    assert gateway.ask("b").status_code == 200
    gateway.until(lambda _: not router.is_loaded("b"))


def test_a_server_may_preload_and_gain_models(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router) + "[models.new]\npreload = true\n"), "a")
    router.models = (*router.models, "new")
    gateway.until(lambda _: router.is_loaded("new"), timeout=30)
    router.models = ("a", "new")
    gateway.until(lambda _: "b@one" not in states(gateway), timeout=30)
    assert gateway.ask("b").status_code == 404
    assert gateway.ask("new").status_code == 200


def test_another_configuration_keeps_what_is_loaded(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert gateway.ask("a").status_code == 200
    gateway.reconfigure(CHECKS + backend("one", router, priority="3") + '[models.a]\nttl = "1h"\n')
    assert states(gateway)["a@one"] == "ready"
    assert gateway.ask("a").status_code == 200
    assert router.loads == ["a"]


def test_a_server_that_is_removed_keeps_what_it_has_loaded(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert gateway.ask("a").status_code == 200
    gateway.reconfigure(CHECKS)
    gateway.until(lambda _: "a@one is stopped" in gateway.log)
    assert "one may still have a loaded: its backend was removed from the configuration" in gateway.log
    assert router.is_loaded("a")


def test_another_server_in_its_place_is_told_nothing_of_the_first(
    serve: Serve, router: FakeRouter, other: FakeRouter
) -> None:
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert gateway.ask("b").status_code == 200
    other.load_by_itself("b")
    gateway.reconfigure(CHECKS + backend("one", other))
    gateway.until(lambda _: "one may still have b loaded" in gateway.log)
    gateway.until(lambda _: states(gateway).get("b@one") == "ready")
    assert router.is_loaded("b")
    assert other.is_loaded("b")
    assert gateway.ask("b").status_code == 200
    assert (other.loads, other.served) == ([], ["b"])


def test_what_a_server_reports_is_known_at_once(serve: Serve, router: FakeRouter) -> None:
    gateway = known(serve('[checks]\ninterval = "60s"\n' + backend("one", router)), "a")
    assert gateway.asking("a").result().status_code == 200
    router.unload_by_itself("a")
    gateway.until(lambda _: states(gateway)["a@one"] == "stopped")
    router.load_by_itself("b")
    gateway.until(lambda _: states(gateway)["b@one"] == "ready")


def test_an_older_router_reports_nothing(serve: Serve, router: FakeRouter) -> None:
    router.reports = False
    gateway = known(serve(CHECKS + backend("one", router)), "a")
    assert gateway.asking("a").result().status_code == 200
    router.unload_by_itself("a")
    gateway.until(lambda _: states(gateway)["a@one"] == "stopped")
