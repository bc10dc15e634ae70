from __future__ import annotations

import json
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx as http


def ask(engine: SimEngine, *, stream: bool = False, model: str = "tiny") -> httpx.Response:
    body = {"model": model, "prompt": "x", "max_tokens": 4, "stream": stream}
    return http.post(f"{engine.url}/v1/completions", json=body)


def events(text: str) -> list[Any]:
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]


def test_an_error_hits_as_many_requests_as_it_counts(engine: SimEngine) -> None:
    engine.fault("error", status=429, count=2)
    answers = [ask(engine) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].json()["error"]["code"] == 429
    assert [(seen.status, seen.fault) for seen in engine.requests()] == [("done", "error")] * 2 + [("done", None)]
    [listed] = http.get(f"{engine.url}/sim/faults").json()
    assert (listed["kind"], listed["hits"]) == ("error", 2)


@pytest.mark.parametrize("status", [499, 529])
def test_an_error_may_have_a_status_without_a_name(engine: SimEngine, status: int) -> None:
    engine.fault("error", status=status)
    assert ask(engine).status_code == status


def test_a_body_that_is_nested_too_deeply_is_refused(engine: SimEngine) -> None:
    engine.fault("error", model="another")
    body = b'{"model":"tiny","prompt":"x","stop":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert http.post(f"{engine.url}/v1/completions", content=body).status_code == 400


def test_an_error_without_a_count_stays_until_cleared(engine: SimEngine) -> None:
    engine.fault("error", body={"detail": "broken"})
    assert [ask(engine).json() for _ in range(2)] == [{"detail": "broken"}] * 2
    engine.clear()
    assert ask(engine).status_code == 200


def test_a_fault_can_be_for_one_model(engine: SimEngine) -> None:
    engine.fault("error", model="tiny-too")
    assert ask(engine, model="tiny").status_code == 200
    assert ask(engine, model="tiny-too").status_code == 500


def test_a_fault_can_be_for_one_page(engine: SimEngine) -> None:
    engine.fault("error", path="/v1/models", status=503)
    assert http.get(f"{engine.url}/v1/models").status_code == 503
    assert ask(engine).status_code == 200


def test_unhealthy_says_so_and_works_on(engine: SimEngine) -> None:
    engine.fault("unhealthy", count=1)
    assert http.get(f"{engine.url}/health").status_code == 503
    assert http.get(f"{engine.url}/health").status_code == 200
    engine.fault("unhealthy")
    assert ask(engine).status_code == 200


def test_hang_answers_once_cleared(engine: SimEngine, eventually: Callable[[Callable[[], bool]], bool]) -> None:
    engine.fault("hang")
    content = b'{"model": "tiny", "prompt": "x"}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", engine.port)) as waiting,
        socket.create_connection(("127.0.0.1", engine.port)) as leaving,
    ):
        leaving.sendall(head.encode() + content)
        assert eventually(lambda: len(engine.requests()) == 1)
        leaving.close()
        assert eventually(lambda: engine.requests()[0].status == "aborted")
        waiting.sendall(head.encode() + content)
        assert eventually(lambda: len(engine.requests()) == 2)
        assert engine.requests()[1].status == "running"
        engine.clear()
        assert waiting.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("stream", [True, False])
def test_drop_before_the_first_byte(engine: SimEngine, stream: bool) -> None:
    engine.fault("drop", count=1)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        ask(engine, stream=stream)
    assert ask(engine, stream=stream).status_code == 200
    assert [(seen.status, seen.fault) for seen in engine.requests()] == [("aborted", "drop"), ("done", None)]
    assert engine.running() == 0


def test_drop_in_the_middle_of_a_stream(engine: SimEngine) -> None:
    engine.fault("drop", after=2)
    body = {"model": "tiny", "prompt": "x", "stream": True}
    got: list[bytes] = []
    with http.stream("POST", f"{engine.url}/v1/completions", json=body) as answer:
        parts = answer.iter_raw()
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            got.extend(parts)
    assert b"".join(got).count(b"data: ") == 2


def test_drop_in_the_middle_of_a_body(engine: SimEngine) -> None:
    engine.fault("drop", after=1)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        ask(engine)


def test_malformed_breaks_one_event_of_a_stream(engine: SimEngine) -> None:
    whole = ask(engine, stream=True).text
    engine.fault("malformed", after=2)
    broken = ask(engine, stream=True).text.split("\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.pop(2).removeprefix("data: "))
    texts = [[one["choices"][0]["text"] for one in events(text)] for text in (whole, "\n\n".join(broken))]
    assert texts[0] == texts[1]


def test_malformed_breaks_the_json_of_a_whole_answer(engine: SimEngine) -> None:
    engine.fault("malformed")
    with pytest.raises(json.JSONDecodeError):
        ask(engine).json()


@pytest.mark.parametrize(("stream", "what"), [(True, "illegal chunk header"), (False, "illegal status line")])
def test_malformed_can_break_the_framing(engine: SimEngine, stream: bool, what: str) -> None:
    engine.fault("malformed", framing=True)
    with pytest.raises(httpx.RemoteProtocolError, match=what):
        ask(engine, stream=stream)


def test_refuse_keeps_connections_out_until_cleared(engine: SimEngine) -> None:
    with http.Client(base_url=engine.url) as client:
        client.get("/health")
        engine.fault("refuse")
        with pytest.raises(httpx.NetworkError):  # the kept connection may be seen to close only as it is used
            client.get("/health")
        with pytest.raises(httpx.ConnectError):
            client.get("/health")
        engine.clear()
        assert client.get("/health").status_code == 200
    assert ask(engine).status_code == 200


def test_refuse_can_end_by_itself(engine: SimEngine, eventually: Callable[[Callable[[], bool]], bool]) -> None:
    began = monotonic()
    engine.fault("refuse", duration="500ms")

    def listens() -> bool:
        try:
            return http.get(f"{engine.url}/health").status_code == 200
        except httpx.NetworkError:
            return False

    assert eventually(listens)
    assert monotonic() - began >= 0.5
    assert http.get(f"{engine.url}/sim/faults").json() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "gremlin"},
        {"kind": "error", "status": 200},
        {"kind": "error", "count": 0},
        {"kind": "drop", "later": 1},
        {"kind": "slow", "first_byte": "soon"},
        {"kind": "refuse", "duration": "soon"},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(engine: SimEngine, fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="answered 400"):
        engine.fault(**fault)
    assert http.get(f"{engine.url}/sim/faults").json() == []
