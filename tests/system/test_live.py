"""The fleet changes while the gateway runs: engines start late, die, come back, and serve something else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import Status
from tests.support.operated_gateway import Serve
from tests.support.parallel import all_of

CHECKS = '[checks]\ninterval = "100ms"\n'


def backend(name: str, url: str, text: str = "") -> str:
    return f'[backends.{name}]\ndriver = "sim"\nurl = "{url}"\n{text}'


def serving(model: str) -> Callable[[Status], bool]:
    return lambda status: any(model in each["models"] for each in status["backends"])


def test_an_engine_that_starts_later_is_taken_in(serve: Serve, free_port: int) -> None:
    config = CHECKS + backend("late", f"http://127.0.0.1:{free_port}")
    gateway = serve(config)
    assert gateway.ask("m").status_code == 503  # it may be the late engine's
    with SimEngine("m", port=free_port):
        gateway.until_health(late="healthy")
        assert gateway.ask("m").status_code == 200
        assert gateway.ask("nobody-has-this").status_code == 404


def test_an_engine_that_is_known_and_away_is_unavailable_until_it_is_here(serve: Serve, free_port: int) -> None:
    config = CHECKS + backend("late", f"http://127.0.0.1:{free_port}", 'models = ["m"]\n')
    gateway = serve(config)
    refused = gateway.ask("m")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_healthy_backend")
    with SimEngine("m", port=free_port):
        gateway.until_health(late="healthy")
        assert gateway.ask("m").status_code == 200


def test_the_death_of_an_engine_is_not_seen_by_clients_and_its_return_is_used(serve: Serve) -> None:
    a, b = SimEngine("m"), SimEngine("m")
    with all_of(a, b):
        config = '[routing]\nstrategy = "priority_only"\n' + backend("a", a.url) + backend("b", b.url, "priority = 1\n")
        gateway = serve('[checks]\ninterval = "1h"\n' + config)
        gateway.until_health(a="healthy", b="healthy")
        assert gateway.went_to("m") == "a"
        a.kill()
        at_once = gateway.ask("m")
        assert (at_once.status_code, at_once.headers["x-enginehouse-backend"]) == (200, "b")
        assert at_once.headers["x-enginehouse-reason"] == "retry"
        gateway.reconfigure(CHECKS + config)
        gateway.until_health(a="unhealthy")
        later = gateway.ask("m")
        assert (later.headers["x-enginehouse-backend"], later.headers["x-enginehouse-reason"]) == ("b", "match")
        with SimEngine("m", port=a.port):
            gateway.until_health(a="healthy")
            assert gateway.went_to("m") == "a"


def test_ac02_an_unhealthy_engine_gets_no_requests(serve: Serve) -> None:
    a, b = SimEngine("m"), SimEngine("m")
    with all_of(a, b):
        config = CHECKS + backend("a", a.url) + backend("b", b.url, "priority = 50\n")
        gateway = serve(config)
        gateway.until_health(a="healthy", b="healthy")
        a.fault("unhealthy")
        gateway.until_health(a="unhealthy")
        assert {gateway.went_to("m") for _ in range(5)} == {"b"}
        assert a.requests() == []
        a.clear()
        gateway.until_health(a="healthy")
        assert gateway.went_to("m") == "a"


def test_the_fallback_serves_while_the_models_only_backend_is_down(serve: Serve) -> None:
    big, small = SimEngine("big"), SimEngine("small")
    with all_of(big, small):
        fallbacks = '[routing.fallbacks]\nbig = ["small"]\n'
        config = CHECKS + backend("one", big.url) + backend("two", small.url) + fallbacks
        gateway = serve(config)
        gateway.until(lambda status: serving("big")(status) and serving("small")(status))
        assert gateway.ask("big").headers["x-enginehouse-reason"] == "match"
        big.kill()
        answer = gateway.ask("big")
        assert answer.status_code == 200
        assert (answer.headers["x-enginehouse-model"], answer.headers["x-enginehouse-reason"]) == (
            "small",
            "fallback",
        )
        assert json.loads(small.requests()[0].raw)["model"] == "small"
        with SimEngine("big", port=big.port):
            gateway.until_health(one="healthy")
            assert gateway.ask("big").headers["x-enginehouse-reason"] == "match"


def test_live_requests_tell_of_a_failing_engine_before_the_next_probe(serve: Serve) -> None:
    with SimEngine("m") as engine:
        config = '[checks]\ninterval = "1h"\n' + backend("a", engine.url)
        gateway = serve(config)
        gateway.until(serving("m"))
        engine.fault("error", status=503)
        assert [gateway.ask("m").status_code for _ in range(4)] == [503, 503, 503, 503]
        assert len(engine.requests()) == 3


def test_an_engine_that_answers_500_is_out_until_it_serves_again(serve: Serve) -> None:
    """Its health page says that all is well, all the time: as on a host whose GPU is gone."""
    with SimEngine("m") as engine:
        gateway = serve('[checks]\ninterval = "50ms"\n' + backend("a", engine.url))
        gateway.until_health(a="healthy")
        engine.fault("error", status=500)
        assert [gateway.ask("m").status_code for _ in range(4)] == [500, 500, 500, 503]
        asked = len(engine.requests())
        gateway.until(lambda _: len(engine.requests()) > asked + 3)
        gateway.until_health(a="unhealthy")
        assert gateway.ask("m").status_code == 503
        engine.clear()
        gateway.until_health(a="healthy")
        assert gateway.ask("m").status_code == 200


class ModelList(ThreadingHTTPServer):
    """An engine that only lists its models."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ModelListHandler)
        self.models = ["old"]
        self.asked, self.may_list = threading.Event(), threading.Event()
        self.may_list.set()


class _ModelListHandler(BaseHTTPRequestHandler):
    server: ModelList

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.server.asked.set()
            self.server.may_list.wait()
        body = json.dumps({"object": "list", "data": [{"id": name} for name in self.server.models]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def model_list() -> Iterator[ModelList]:
    with ModelList() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_backend_is_healthy_only_when_its_models_are_known(serve: Serve, model_list: ModelList) -> None:
    listed = model_list.may_list
    listed.clear()
    config = (
        '[checks]\ntimeout = "1h"\n'
        + f'[backends.a]\ndriver = "vllm"\nurl = "http://127.0.0.1:{model_list.server_port}"\n'
    )
    with SimEngine("m") as other:
        gateway = serve(config + backend("b", other.url))
        gateway.until_health(b="healthy")
        assert model_list.asked.wait(30)
        gateway.until_health(a="unknown")
        unknown = gateway.ask("old")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (503, "no_healthy_backend")
        assert "models of a" in unknown.json()["error"]["message"]
        assert int(unknown.headers["retry-after"]) > 0
        assert gateway.http.get("/ready").status_code == 503
        assert gateway.ask("m").status_code == 200
        listed.set()
        gateway.until_health(a="healthy")
        assert gateway.http.get("/ready").status_code == 200
        assert gateway.ask("unknown").status_code == 404


def test_models_that_an_engine_adds_or_drops_show_up(serve: Serve, model_list: ModelList) -> None:
    config = CHECKS + f'[backends.a]\nurl = "http://127.0.0.1:{model_list.server_port}"\n'
    gateway = serve(config)
    gateway.until(serving("old"))
    model_list.models = ["new"]
    gateway.until(serving("new"))
    listed = gateway.http.get("/v1/models").json()

    assert [model["id"] for model in listed["data"]] == ["new"]
