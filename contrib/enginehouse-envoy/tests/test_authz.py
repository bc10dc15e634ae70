"""External authorization, asked as Envoy asks."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from running import BODY, Answer, RunningPicker, ask, running_picker, until

from enginehouse_kit.engines import SimEngine

DESTINATION = "x-gateway-destination-endpoint"


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("sim") as engine:
        yield engine


@pytest.fixture(scope="module")
def picker(engine: SimEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPicker]:
    config = f"""
[server]
max_body = "64KiB"
[backends.a]
url = "http://localhost:{engine.port}"
driver = "sim"
api_key = "key-of-the-engine"
[routing.aliases]
nick = "sim"
[[auth.keys]]
name = "ann"
key = "secret-of-ann"
admin = true
"""
    folder = tmp_path_factory.mktemp("authz")
    with running_picker(config, folder, "--socket", str(folder / "socket")) as picker:
        yield picker


def check(picker: RunningPicker, body: object = BODY, path: str = "/v1/chat/completions", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(picker.authz, body, path=path, headers={"authorization": "Bearer secret-of-ann", **named})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/before/v1/chat/completions?x=1"])
def test_the_answer_leads_to_the_literal_address_of_an_engine(
    picker: RunningPicker, engine: SimEngine, path: str
) -> None:
    answer = check(picker, path=path)
    assert answer.status == 200
    assert answer.headers[DESTINATION] == f"127.0.0.1:{engine.port}"


def test_the_engine_gets_its_own_key_and_none_of_the_client(picker: RunningPicker) -> None:
    answer = check(picker, cookie="c=1", x_api_key="secret-of-ann")
    assert answer.headers["authorization"] == "Bearer key-of-the-engine"
    removed = answer.headers["x-envoy-auth-headers-to-remove"].split(",")
    assert set(removed) == {"cookie", "x-api-key"}


def test_the_request_id_of_the_client_stays(picker: RunningPicker) -> None:
    assert check(picker, x_request_id="mine").headers["x-request-id"] == "mine"
    until(lambda: any(each["id"] == "mine" for each in history(picker)), "it is in the history")


def history(picker: RunningPicker) -> list[dict[str, object]]:
    answer = ask(
        picker.pages, None, method="GET", path="/api/history", headers={"authorization": "Bearer secret-of-ann"}
    )
    return list(json.loads(answer.body).get("requests", []))


def test_a_request_without_a_body_goes_to_any_engine(picker: RunningPicker, engine: SimEngine) -> None:
    key = {"authorization": "Bearer secret-of-ann"}
    answer = ask(picker.authz, None, method="GET", path="/v1/models", headers=key)
    assert answer.headers[DESTINATION] == f"127.0.0.1:{engine.port}"
    assert ask(picker.authz, None, method="GET", path="/v1/models").status == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**BODY, "model": "nope"}, 404, "model_not_found"),
        ({**BODY, "model": "nick"}, 400, "invalid_request"),
        (b"{", 400, "invalid_request"),
        (b" " * 70_000, 413, "invalid_request"),
    ],
)
def test_what_cannot_be_served_is_refused(picker: RunningPicker, body: object, status: int, code: str) -> None:
    answer = check(picker, body)
    assert (answer.status, answer.code) == (status, code)


def test_a_wrong_key_is_refused(picker: RunningPicker) -> None:
    answer = check(picker, authorization="Bearer wrong")
    assert (answer.status, answer.code) == (401, "unauthorized")


def test_one_connection_brings_many_requests(picker: RunningPicker) -> None:
    body = json.dumps(BODY).encode()
    lines = ("POST /v1/completions HTTP/1.1", "host: x", "authorization: Bearer secret-of-ann")
    head = "\r\n".join((*lines, f"content-length: {len(body)}"))
    with socket.create_connection(("127.0.0.1", picker.authz), 20) as connection:
        for _ in range(3):
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_unix_socket_is_asked_in_the_same_way(picker: RunningPicker) -> None:
    body = json.dumps(BODY).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nauthorization: Bearer secret-of-ann\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(picker.folder / "socket"))
        connection.sendall(head.encode() + body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_answer_about_its_health_lets_no_request_pass(picker: RunningPicker) -> None:
    assert ask(picker.authz, None, method="GET", path="/enginehouse/ready").status == 202


def test_what_is_no_http_is_cut_off(picker: RunningPicker) -> None:
    with socket.create_connection(("127.0.0.1", picker.authz), 20) as connection:
        connection.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert connection.recv(1) == b""
