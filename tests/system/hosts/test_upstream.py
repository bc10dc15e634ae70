"""Everything that launched engines offer, reached through the gateway."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import SHUT_RDWR, create_connection
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.operated_gateway import OperatedGateway, Serve, ServeAlone, simulated_table, table

ENGINE = Path(__file__).with_name("socket_engine.py")
_RUNS_NOTHING = re.compile(r"num_requests_running\{.*\} 0")
KEYED = '[auth]\nkeys = [{ name = "root", key = "k-admin", admin = true }, { name = "a", key = "a", models = ["a"] }]\n'
LOADS_ARE_CANCELLED = '[scheduling]\ncancel_loads = "always"\n'


def echoing(name: str, **settings: str) -> str:
    """The table of a model whose engine speaks WebSocket."""
    more = "\n".join(f"{key} = {value}" for key, value in settings.items())
    return f"[models.{name}]\ncommand = \"{sys.executable} {ENGINE} ${{port}}\"\nhealth_path = '/ready'\n{more}\n"


def dial(gateway: OperatedGateway, path: str, **more: Any) -> ClientConnection:
    address = gateway.process.url.replace("http://", "ws://")
    socket: ClientConnection = connect(f"{address}/upstream/{path}", proxy=None, **{"open_timeout": 30, **more})
    return socket


def ended(socket: ClientConnection) -> tuple[int | None, str | None]:
    with pytest.raises(ConnectionClosed):
        socket.recv(timeout=60)
    return socket.close_code, socket.close_reason


# --- HTTP


def test_a_model_is_loaded_for_whatever_is_asked_of_its_engine(serve: Serve) -> None:
    gateway = serve(table("a") + table("b") + '[routing.aliases]\n"author/b" = "b"\n')
    assert gateway.http.get("/upstream/a/health").status_code == 200
    assert gateway.running() == {"a": "ready"}
    answer = gateway.http.get("/upstream/author/b/v1/models")
    assert [each["id"] for each in answer.json()["data"]] == ["b"]
    assert answer.headers["x-enginehouse-reason"] == "alias"
    assert gateway.running() == {"b": "ready"}
    assert gateway.http.get("/upstream/c/health").json()["error"]["code"] == "model_not_found"
    assert gateway.running() == {"b": "ready"}


def test_the_page_of_a_launched_engine_may_be_used(serve: Serve) -> None:
    answer = serve(table("a")).http.get("/upstream/a/health")
    assert "content-security-policy" not in answer.headers


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE"])
def test_the_engine_answers_every_method(serve: Serve, method: str) -> None:
    gateway = serve(table("a"))
    answer = gateway.http.request(method, "/upstream/a/health", content=b"x" if method == "PUT" else None)
    assert answer.headers["x-enginehouse-backend"] == "a"
    assert gateway.running() == {"a": "ready"}


def test_a_stream_is_relayed_from_the_engines_own_path(serve: Serve) -> None:
    gateway = serve(simulated_table("a"))
    body = {"model": "a", "stream": True, "max_tokens": 3, "messages": [{"role": "user", "content": "Hello"}]}

    def chunked() -> Any:
        yield httpx.Request("POST", "http://x", json=body).content

    answer = gateway.http.post(
        "/upstream/a/v1/chat/completions", content=chunked(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_client_may_disconnect_while_its_model_loads(serve: Serve) -> None:
    gateway = serve(LOADS_ARE_CANCELLED + table("a", "1m"))
    with gateway.impatient_client("a", "/upstream/a/health"):
        gateway.until_waiting(a="loading")
    gateway.until(lambda status: status["requests"] == 0)
    gateway.until_running()
    assert {each["pending"] for each in gateway.process.status()["backends"]} == {0}


def test_a_client_that_disconnects_ends_the_engines_call(serve: Serve) -> None:
    gateway = serve(simulated_table("a", ttft="1m"))
    gateway.operate("/api/models/a/load")
    with gateway.impatient_client("a", "/upstream/a/v1/chat/completions"):
        gateway.until(lambda _: not _RUNS_NOTHING.search(gateway.http.get("/upstream/a/metrics").text))
    status = gateway.until(lambda status: status["requests"] == 0)
    assert [each["pending"] for each in status["backends"]] == [0]
    gateway.until(lambda _: bool(_RUNS_NOTHING.search(gateway.http.get("/upstream/a/metrics").text)))


def test_a_failed_load_is_answered_as_such(serve: Serve) -> None:
    gateway = serve("[models.broken]\ncommand = \"sh -c 'exit 3' ${port}\"\n")
    answer = gateway.http.delete("/upstream/broken/x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")


def test_a_key_reaches_the_engines_of_its_models_and_stays_here(serve: Serve) -> None:
    gateway = serve(KEYED + table("a") + table("b"))
    assert gateway.http.get("/upstream/a/health", headers={"x-api-key": "a"}).status_code == 200
    assert gateway.http.get("/upstream/b/health", headers={"x-api-key": "a"}).status_code == 403
    assert gateway.http.get("/upstream/a/health", headers={"x-api-key": "wrong"}).status_code == 401
    assert gateway.running() == {"a": "ready"}


# --- WebSockets


def test_a_model_is_loaded_for_a_websocket_and_stays_while_that_is_open(serve: Serve) -> None:
    idle = table("idle", host="'other'", ttl="'100ms'") + "[hosts.other]\n"
    gateway = serve(echoing("a", ttl="'100ms'") + table("b") + idle)
    with dial(gateway, "a/live") as socket:
        socket.send("Hello")
        assert socket.recv(timeout=30) == "Hello"
        other = gateway.asking("b")
        gateway.until_waiting(b="queued")
        gateway.operate("/api/models/idle/load")
        gateway.until_running(a="ready")
        assert {each["model"]: each["phase"] for each in gateway.requests()} == {"a": "serving", "b": "queued"}
        socket.send(b"still here")
        assert socket.recv(timeout=30) == b"still here"
    assert other.result().status_code == 200
    assert gateway.running() == {"b": "ready"}


@pytest.mark.parametrize("end", ["the client leaves", "an operator ends it", "its model is unloaded"])
def test_a_websocket_that_waits_for_its_model_may_end(serve: Serve, end: str) -> None:
    gateway = serve(LOADS_ARE_CANCELLED + table("a", "1m"))
    url = httpx.URL(gateway.process.url)
    with ThreadPoolExecutor() as pool, create_connection((url.host, url.port or 80)) as connection:
        dialling = pool.submit(dial, gateway, "a/", sock=connection, additional_headers={"x-request-id": "mine"})
        gateway.until_waiting(a="loading")
        if end == "the client leaves":
            connection.shutdown(SHUT_RDWR)
        elif end == "an operator ends it":
            assert gateway.http.delete("/api/requests/mine").status_code == 200
        else:
            gateway.operate("/api/models/a/unload")
        error = dialling.exception()
    assert isinstance(error, InvalidStatus) is (end != "the client leaves")
    if isinstance(error, InvalidStatus):
        assert error.response.status_code == (499 if end == "an operator ends it" else 503)
    gateway.until(lambda status: status["requests"] == 0)
    gateway.until_running()
    assert [each["pending"] for each in gateway.process.status()["backends"]] == [0]


def test_an_idle_model_is_stopped_once_its_websocket_is_closed(serve: Serve) -> None:
    gateway = serve(echoing("a", ttl="'100ms'"))
    with dial(gateway, "a/"):
        gateway.until_running(a="ready")
    gateway.until_running()


def test_a_gateway_that_stops_says_so_to_both_sides(serve_alone: ServeAlone) -> None:
    gateway = serve_alone(echoing("a") + "[server]\ndrain_timeout = '1h'\n")
    with dial(gateway, "a/") as socket, ThreadPoolExecutor() as pool:
        stopping = pool.submit(gateway.process.stop)
        code, reason = ended(socket)
        assert (code, "shutting down" in (reason or "")) == (1001, True)
        stopping.result()


def test_an_unload_ends_websockets_at_once(serve: Serve) -> None:
    gateway = serve(echoing("a") + "[server]\ndrain_timeout = '1h'\n")
    with dial(gateway, "a/") as socket, ThreadPoolExecutor() as pool:
        unloading = pool.submit(gateway.operate, "/api/models/a/unload")
        code, reason = ended(socket)
        assert (code, "is being stopped" in (reason or "")) == (1001, True)
        assert unloading.result().json() == {"model": "a", "state": "stopped"}


def test_an_engine_that_dies_ends_its_websockets(serve: Serve) -> None:
    gateway = serve(echoing("a"))
    with dial(gateway, "a/") as socket:
        gateway.operate("/api/models/a/unload?force=true")
        assert ended(socket)[0] in (1001, 1014)
    gateway.until_running()
    with dial(gateway, "a/") as socket:
        socket.send("again")
        assert socket.recv(timeout=30) == "again"


def test_a_refused_websocket_has_the_true_status(serve: Serve) -> None:
    gateway = serve("[models.broken]\ncommand = \"sh -c 'exit 3' ${port}\"\n" + echoing("a"))
    for path, status in {"broken/": 503, "nope/": 404}.items():
        with pytest.raises(InvalidStatus) as refused:
            dial(gateway, path)
        assert refused.value.response.status_code == status
    assert "without completing handshake" not in gateway.log


# --- readiness


def test_a_model_is_ready_when_its_own_page_says_so(serve: Serve) -> None:
    gateway = serve(echoing("a", start_timeout="'20s'"))
    assert gateway.operate("/api/models/a/load").status_code == 200
    assert gateway.http.get("/upstream/a/x").text == "/x\n"
    gateway.process.until_health(a="healthy")


def test_an_engine_without_a_page_for_it_is_ready_when_it_answers(serve: Serve) -> None:
    gateway = serve(echoing("a").replace("'/ready'", "'none'") + echoing("b").replace("'/ready'", "'/nowhere'"))
    assert gateway.operate("/api/models/a/load").status_code == 200
    table = echoing("b", start_timeout="'10s'").replace("'/ready'", "'/nowhere'")
    refusal = serve(table).operate("/api/models/b/load").json()["error"]
    assert refusal["code"] == "load_failed"
    assert "GET /nowhere answered 404" in refusal["message"]


# --- aliases


def test_an_alias_is_loaded_and_unloaded_as_its_target(serve: Serve) -> None:
    gateway = serve(table("a") + '[routing.aliases]\nnick = "a"\nfar = "elsewhere"\na = "b"\n')
    assert gateway.operate("/api/models/nick/load").json() == {"model": "nick", "state": "ready"}
    assert gateway.running() == {"a": "ready"}
    assert gateway.operate("/api/models/nick/unload").json() == {"model": "nick", "state": "stopped"}
    assert gateway.running() == {}
    assert gateway.operate("/api/models/far/load").status_code == 404
    assert gateway.http.post("/api/explain/swap", json={"target": "nick"}).json()["target"] == "a"
