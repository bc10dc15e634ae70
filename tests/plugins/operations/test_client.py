from __future__ import annotations

import csv
import io
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from click import unstyle
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import EnginehouseError, GatewayError
from enginehouse.processes.listen import configured_url
from enginehouse_kit.output import coloured_text
from enginehouse_operations import lifecycle
from tests.support.held_port import held_port

FIGURES = dict.fromkeys(("requests", "failed", "tokens_in", "tokens_cached", "tokens_out", "seconds", "cost"), 1)


class FakeGateway(ThreadingHTTPServer):
    """Answers everything with ``answer``; ``seen`` are the requests as (method, path, authorization).

    While ``busy`` is set, a POST is answered only after a GET.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.seen: list[tuple[str, str, str | None]] = []
        self.busy = False
        self.looked = Event()


class _Handler(BaseHTTPRequestHandler):
    server: FakeGateway

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, self.headers["authorization"]))
        if self.command == "GET":
            self.server.looked.set()
        elif self.server.busy:
            self.server.looked.wait(timeout=30)
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENGINEHOUSE_URL", "ENGINEHOUSE_KEY", "ENGINEHOUSE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(enginehouse, arguments)


def refused(*arguments: str) -> EnginehouseError:
    result = run(*arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, EnginehouseError)
    assert "\n" not in str(result.exception)
    return result.exception


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("gpu-1", "gpu-1"),
        ("llama3:8b", "llama3%3A8b"),
        ("org/model:7b", "org%2Fmodel%3A7b"),
        ("a b?#é", "a%20b%3F%23%C3%A9"),
    ],
)
def test_the_name_of_a_backend_arrives_whatever_it_is(gateway: FakeGateway, name: str, encoded: str) -> None:
    for command in ("drain", "undrain"):
        result = run(command, name, "--url", gateway.url)
        assert (result.exit_code, result.stdout.startswith(name)) == (0, True)

    assert [seen[:2] for seen in gateway.seen] == [
        ("POST", f"/api/backends/{encoded}/drain"),
        ("POST", f"/api/backends/{encoded}/undrain"),
    ]


def test_logs_are_asked_for_as_the_options_say(gateway: FakeGateway) -> None:
    gateway.answer = (200, {}, b"line\n")
    for arguments in (["org/m"], ["org/m", "-f", "-n", "3"], [], ["--follow"], ["--lines", "0"]):
        assert run("logs", *arguments, "--url", gateway.url).stdout == "line\n"

    assert [path for _, path, _ in gateway.seen] == [
        "/api/logs/org%2Fm?follow=false",
        "/api/logs/org%2Fm?follow=true&lines=3",
        "/logs?follow=false",
        "/logs/stream?follow=true",
        "/logs?follow=false&lines=0",
    ]


def test_a_log_that_breaks_off_is_told_of(gateway: FakeGateway) -> None:
    gateway.answer = (200, {"transfer-encoding": "chunked"}, b"5\r\nline\n\r\n")
    result = run("logs", "--url", gateway.url)
    assert result.stdout == "line\n"
    assert "broke off" in str(result.exception)


def test_address_and_key_come_from_the_environment(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEHOUSE_URL", gateway.url + "/")
    monkeypatch.setenv("ENGINEHOUSE_KEY", "sch-lüssel")
    gateway.answer = (200, {}, b'{"data": []}')

    assert run("models").exit_code == 0
    assert run("models", "--key", "other").exit_code == 0
    assert gateway.seen[0][1] == "/v1/models"
    keys = [(seen[2] or "").encode("latin-1").decode() for seen in gateway.seen]
    assert keys == ["Bearer sch-lüssel", "Bearer other"]


def test_no_key_is_sent_where_there_is_none(gateway: FakeGateway) -> None:
    run("drain", "x", "--url", gateway.url)
    assert gateway.seen[0][2] is None


def test_a_proxy_is_not_asked(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert run("drain", "x", "--url", gateway.url).exit_code == 0


def test_a_key_does_not_follow_a_redirection(gateway: FakeGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        elsewhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
        gateway.answer = (302, {"location": f"{elsewhere}/v1/models"}, b"")
        received: list[bytes] = []

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(1 << 16))
                connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"data": []}')

        thread = Thread(target=answer)
        thread.start()
        run("models", "--url", gateway.url, "--key", "s3cret")
        thread.join()
    assert gateway.seen[0][2] == "Bearer s3cret"
    assert b"s3cret" not in received[0]


def test_json_is_what_the_gateway_answered(gateway: FakeGateway) -> None:
    answer = b'{"object":"list","data":[{"id":"a","root":"b","created":1,"figure":0.10}]}'
    gateway.answer = (200, {}, answer)

    printed = run("models", "--url", gateway.url, "--json").stdout

    assert json.loads(printed) == json.loads(answer)
    assert "0.10" in printed


@pytest.mark.parametrize(
    "command",
    [["drain", "a"], ["drain", "a", "--wait", "1s"], ["undrain", "a"], ["load", "m"], ["unload", "m"], ["unload"]],
    ids=" ".join,
)
def test_json_of_a_command_is_one_object(gateway: FakeGateway, command: list[str]) -> None:
    gateway.answer = (200, {}, b'{"live": 0}') if len(command) > 1 else (200, {}, b"OK")
    result = run(*command, "--json", "--url", gateway.url)
    answer = {"live": 0} if len(command) > 1 else {"model": None, "state": "stopped"}
    assert (result.exit_code, json.loads(result.stdout)) == (0, answer)


@pytest.mark.parametrize(
    ("command", "done"), [("load", "org/m is ready\n"), ("unload", "org/m is unloaded\n")], ids=["load", "unload"]
)
def test_a_command_that_waits_tells_the_state_of_the_model(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, command: str, done: str
) -> None:
    monkeypatch.setattr(lifecycle, "_LOOK_EVERY_S", 0.01)
    gateway.busy = True
    gateway.answer = (200, {}, b'{"status": {"value": "loading"}}')
    result = run(command, "org/m", "--url", gateway.url)
    assert (result.exit_code, result.stdout) == (0, done)
    assert result.stderr.splitlines() == ["org/m is loading, after 0 s"]
    assert ("GET", "/v1/models/org%2Fm", None) in gateway.seen


def test_waiting_tells_only_what_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_LOOK_EVERY_S", 0.01)
    states = iter(["queued", "queued", "", "loading", "loading"])
    ready = Event()

    def look() -> str:
        state = next(states, None)
        if state is None:
            ready.set()
            return "loading"
        if not state:
            raise GatewayError("busy")
        return state

    def ask() -> bytes:
        ready.wait(timeout=30)
        return b"ready"

    assert lifecycle.wait_for(ask, look) == b"ready"
    assert capsys.readouterr().err.splitlines() == ["queued, after 0 s", "loading, after 0 s"]


def test_an_error_of_what_is_waited_for_is_raised() -> None:
    def ask() -> bytes:
        raise GatewayError("The model 'm' is unknown")

    with pytest.raises(GatewayError, match="is unknown"):
        lifecycle.wait_for(ask, lambda: "never asked")


def test_the_table_of_models_shows_aliases_and_lengths(gateway: FakeGateway) -> None:
    cards = [{"id": "[b]m[/b]", "root": "[b]m[/b]", "max_model_len": 8192}, {"id": "gpt-4", "root": "[b]m[/b]"}]
    gateway.answer = (200, {}, json.dumps({"data": cards}).encode())

    rows = [
        [cell.strip() for cell in line.split("│")] for line in run("models", "--url", gateway.url).stdout.splitlines()
    ]

    assert ["", "[b]m[/b]", "", "8192", ""] in rows
    assert ["", "gpt-4", "[b]m[/b]", "", ""] in rows


@pytest.mark.parametrize("command", [["activity"], ["usage", "--by", "model"]])
def test_names_that_clients_choose_do_not_steer_the_terminal(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    name = "[/x]\x1b]0;title\x07"
    history = {"requests": [{"model": name, "status": 404}], "count": 1}
    usage = {"rows": [{"key": "k", "model": name} | FIGURES], "total": FIGURES}
    gateway.answer = (200, {}, json.dumps(history | usage).encode())

    table = run(*command, "--url", gateway.url).stdout

    assert r"[/x]\x1b]0;title\x07" in table
    assert "\x1b" not in table


def test_costs_of_little_use_are_no_powers_of_ten(gateway: FakeGateway) -> None:
    figures = FIGURES | {"seconds": 0.205, "cost": 0.000011}
    gateway.answer = (200, {}, json.dumps({"rows": [{"key": "team"} | figures], "total": figures}).encode())

    table = run("usage", "--url", gateway.url).stdout

    assert [(line.split()[0], line.split()[-2:]) for line in table.splitlines()[1:]] == [
        ("team", ["0.205", "0.000011"]),
        ("total", ["0.205", "0.000011"]),
    ]


def test_the_table_of_keys_shows_all_limits(gateway: FakeGateway) -> None:
    scoped = [{"models": ["big", "huge*"], "per": "user", "tokens_per_day": 500, "max_concurrent": 0}]
    key = {"name": "[b]k[/b]", "source": "store", "requests_per_minute": 9, "limits": scoped, "last_used": None}
    gateway.answer = (200, {}, json.dumps({"keys": [key]}).encode())

    table = run("keys", "list", "--url", gateway.url).stdout

    said = " ".join(table.split())
    assert "[b]k[/b]" in said
    assert "requests_per_minute 9;" in said
    assert "each user, big, huge*: tokens_per_day 500" in said


def test_that_nothing_listens_is_said_with_a_remedy() -> None:
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        message = str(refused("status", "--url", url))

    assert message.startswith(f"No gateway can be reached at {url}: ")
    assert "Connection refused" in message
    assert "--url or $ENGINEHOUSE_URL" in message


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "No API key (the key is taken from --key"), (403, "(the key is taken"), (404, "No API key")],
)
def test_a_refusal_is_told_in_the_gateways_words(gateway: FakeGateway, status: int, words: str) -> None:
    gateway.answer = (status, {}, b'{"error": {"message": "No API key"}}')

    message = str(refused("status", "--url", gateway.url))

    assert message.startswith(f"{gateway.url}: No API key")
    assert words in message


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"[]"), (500, b"oops"), (404, b"{}")])
def test_something_else_that_listens_is_recognised(gateway: FakeGateway, answer: tuple[int, bytes]) -> None:
    gateway.answer = (answer[0], {}, answer[1])
    assert "does not answer as a gateway does" in str(refused("status", "--url", gateway.url, "--json"))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://h", "http:", "http://h:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert f"'{url}' is not the address of a gateway" in str(refused("status", "--url", url))


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    message = str(refused("status", "--url", "http://h", "--key", "s3\ncret"))
    assert "line break" in message
    assert "s3" not in message


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("", "http://127.0.0.1:8080"),
        ("host = '0.0.0.0'\nport = 1", "http://127.0.0.1:1"),
        ("host = '::'\nport = 1", "http://[::1]:1"),
        ("host = 'fe80::1'\nport = 1", "http://[fe80::1]:1"),
        ("host = 'gateway.example'\nport = 1", "http://gateway.example:1"),
    ],
)
def test_the_configured_address_is_one_that_can_be_reached(server: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(f"[server]\n{server}")
    assert configured_url(tmp_path / "own.toml") == url


def test_a_port_that_only_the_gateway_knows_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("server.port = 0")
    with pytest.raises(GatewayError, match=r"server\.port is 0"):
        configured_url(tmp_path / "own.toml")


def test_logs_do_not_steer_the_terminal(gateway: FakeGateway) -> None:
    log = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J 10 %\r20 %\r\nä\x9b1m\n".encode()
    gateway.answer = (200, {}, log)
    pieces = [log[number : number + 1] for number in range(len(log))]
    shown = "".join(coloured_text(pieces))
    assert shown == "\x1b[31mred\x1b[0m \\x1b]0;title\\x07 \\x1b[2J 10 %\n20 %\nä\\x9b1m\n"
    assert run("logs", "--url", gateway.url).stdout == unstyle(shown), "a pipe gets no colours"


def test_values_of_clients_are_no_formulas(gateway: FakeGateway) -> None:
    figures = dict.fromkeys(("requests", "failed", "tokens_in", "tokens_cached", "tokens_out", "seconds", "cost"), -1)
    users = ["=HYPERLINK(1)", "+1", "-1", "@a", "\t=1", "a\x1b[2J", 'a"b,c']
    rows = [{"key": None, "model": None, "user": user, "day": None, **figures} for user in users]
    gateway.answer = (200, {}, json.dumps({"rows": rows, "total": figures}).encode())
    shown = run("usage", "--by", "user", "--csv", "--url", gateway.url).stdout
    found = [row[0] for row in csv.reader(io.StringIO(shown))]
    assert found == ["user", "'=HYPERLINK(1)", "'+1", "'-1", "'@a", "'\t=1", "a\\x1b[2J", 'a"b,c']
    assert "'-1,-1" in shown, "numbers stay"


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"data": [{"id": "llama"}, {"id": "qwen"}, {"id": "lima"}]}, ["lima", "llama"]),
        ({"data": None}, []),
        ({"data": ["llama"]}, []),
        ({"data": [{"name": "llama"}, {"id": 7}]}, []),
        ({}, []),
        ([], []),
    ],
)
def test_a_shell_completes_the_names_of_models(gateway: FakeGateway, answer: object, names: list[str]) -> None:
    gateway.answer = (200, {}, json.dumps(answer).encode())
    shell = ShellComplete(enginehouse, {}, "enginehouse", "")
    assert [each.value for each in shell.get_completions(["load", "--url", gateway.url], "l")] == names


def test_a_drain_that_waits_looks_on_and_drains_once_more_at_the_end(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2, 2, 1]

    def look(_: float) -> None:
        count = left.pop() if left else 0
        requests = [{"replica": "m@gpu"}] * count + [{"replica": "m@other"}, {"replica": None}]
        replicas = [{"replica": f"m@{name}", "backend": name} for name in ("gpu", "other")]
        gateway.answer = (200, {}, json.dumps({"live": count, "requests": requests, "replicas": replicas}).encode())

    monkeypatch.setattr("enginehouse_operations.lifecycle.time.sleep", look)
    gateway.answer = (200, {}, b'{"live": 2}')
    result = run("drain", "gpu", "--wait", "60s", "--url", gateway.url)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "gpu has no live request")
    assert [path for method, path, _ in gateway.seen if method == "POST"] == ["/api/backends/gpu/drain"] * 2
    assert [path for method, path, _ in gateway.seen if method == "GET"] == ["/api/status", *["/api/requests"] * 4]


@pytest.mark.parametrize("command", [["status"], ["load", "m"]], ids=" ".join)
def test_what_an_engine_printed_does_not_steer_the_terminal(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(lifecycle, "_LOOK_EVERY_S", 0.01)
    backend: dict[str, Any] = {"name": "gpu", "driver": "sim", "state": "ready", "health": "unhealthy"}
    backend |= {"last_error": "it said \x1b[2J", "draining": False, "models": [], "pending": 0, "avg_latency_ms": 0}
    condition = {"word": "failed", "why": "it said \x1b[2J"}
    replica = {"model": "m", "backend": "gpu", "state": "failed", "condition": condition}
    status: dict[str, Any] = {"version": "0", "strategy": "smart", "uptime_s": 1, "requests": 0}
    status |= {"backends": [backend], "replicas": [replica], "status": {"value": "unloaded"}, "root": "m"}
    gateway.answer = (200, {}, json.dumps(status).encode())
    gateway.busy = True
    result = run(*command, "--url", gateway.url)
    assert "it said \\x1b[2J" in result.output
    assert "\x1b" not in result.output


def test_amounts_of_keys_are_shown_as_they_are(gateway: FakeGateway) -> None:
    key = {"name": "a", "source": "api", "last_used": None, "tokens_per_day": 12_345_678, "budget_per_day": 0.5}
    gateway.answer = (200, {}, json.dumps({"keys": [key]}).encode())
    shown = " ".join(run("keys", "list", "--url", gateway.url).stdout.split())
    assert "tokens_per_day 12345678, budget_per_day 0.5" in shown


def test_usage_has_a_column_for_each_field_however_they_are_written(gateway: FakeGateway) -> None:
    row = {"key": "ann", "model": "big", "user": None, "day": None, **FIGURES}
    gateway.answer = (200, {}, json.dumps({"rows": [row], "total": FIGURES}).encode())
    shown = run("usage", "--by", "key, model", "--csv", "--url", gateway.url).stdout
    assert [line.split(",")[:3] for line in shown.splitlines()] == [["key", "model", "requests"], ["ann", "big", "1"]]
