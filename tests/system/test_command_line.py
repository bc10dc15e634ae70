"""Commands that talk to a running gateway."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status

WIDE = {"COLUMNS": "200"}


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("llama3:8b", context_length=4096) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(engine: SimEngine) -> Iterator[RunningGateway]:
    config = f"""
[auth]
keys = [{{ name = "admin", key = "k-admin", admin = true }}, {{ name = "app", key = "k-app", models = ["gpt-*"] }}]
[backends."rack/gpu:1"]
driver = "sim"
url = "{engine.url}"
[backends.gone]
url = "http://127.0.0.1:9"
models = ["qwen"]
[routing.aliases]
"gpt-4" = "llama3:8b"
"""
    with RunningGateway(config, key="k-admin") as gateway:
        gateway.until_health(**{"rack/gpu:1": "healthy", "gone": "unhealthy"})
        yield gateway


@pytest.fixture
def run(gateway: RunningGateway) -> Callable[..., Result]:
    def invoke(*arguments: str, key: str = "k-admin") -> Result:
        environment = {**WIDE, "ENGINEHOUSE_URL": gateway.url, "ENGINEHOUSE_KEY": key}
        return CliRunner(env=environment).invoke(enginehouse, arguments)

    return invoke


def test_status_shows_the_gateway_and_its_backends(run: Callable[..., Result]) -> None:
    printed = run("status").stdout

    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]
    assert printed.startswith("Enginehouse 0.")
    assert "strategy cache_aware, live requests: 0" in printed
    backends = {row[0]: row for row in rows if row}
    assert backends["rack/gpu:1"][1:4] == ["sim", "healthy", "0"]
    assert re.fullmatch(r"\d+ ms", backends["rack/gpu:1"][4])
    assert backends["rack/gpu:1"][5] == "llama3:8b"
    assert backends["gone"] == ["gone", "openai", "unhealthy", "0", "0 ms", "qwen"]
    assert printed.splitlines()[-1].startswith("gone is unhealthy: ")


def test_status_as_json_is_the_gateways_answer(run: Callable[..., Result], gateway: RunningGateway) -> None:
    def is_printed(status: Status) -> bool:
        """Whether it is; a probe in between may change when an engine has failed last."""
        printed = json.loads(run("status", "--json").stdout)
        assert printed.keys() == status.keys()
        return bool(printed["backends"] == status["backends"])

    gateway.until(is_printed)


def test_models_shows_what_the_key_may_use(run: Callable[..., Result]) -> None:
    everything = json.loads(run("models", "--json").stdout)
    allowed = json.loads(run("models", "--json", key="k-app").stdout)

    assert [model["id"] for model in everything["data"]] == ["qwen", "llama3:8b", "gpt-4"]
    assert [model["id"] for model in allowed["data"]] == ["gpt-4"]
    assert "4096" in run("models").stdout


def test_a_drained_backend_gets_no_requests_until_it_is_undrained(
    run: Callable[..., Result], gateway: RunningGateway, http: httpx.Client
) -> None:
    def chat() -> int:
        body = {"model": "llama3:8b", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"authorization": "Bearer k-admin"}
        return http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers).status_code

    assert run("drain", "rack/gpu:1").stdout == "rack/gpu:1 gets no new requests\n"
    assert chat() == 503
    assert "healthy, draining" in run("status").stdout
    assert run("undrain", "rack/gpu:1").stdout == "rack/gpu:1 gets requests again\n"
    assert chat() == 200


def test_a_backend_that_cannot_be_stopped_is_not_drained_for_its_stop(run: Callable[..., Result]) -> None:
    refused = run("drain", "rack/gpu:1", "--stop")
    assert "The gateway did not launch backend 'rack/gpu:1'" in str(refused.exception)
    assert refused.stdout == ""
    assert "draining" not in run("status").stdout


def test_an_unknown_backend_is_an_error_with_a_guess(run: Callable[..., Result]) -> None:
    assert "There is no backend 'gonne'; did you mean \"gone\"?" in str(run("drain", "gonne").exception)


@pytest.mark.parametrize(
    ("key", "problem"), [("k-wrong", "Unknown API key"), ("k-app", "Key 'app' is not an admin key"), ("", "No API key")]
)
def test_an_insufficient_key_is_an_error_with_a_remedy(run: Callable[..., Result], key: str, problem: str) -> None:
    message = str(run("status", key=key).exception)

    assert problem in message
    assert "--key or $ENGINEHOUSE_KEY" in message


@contextmanager
def terminal(gateway: RunningGateway) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """``enginehouse top`` in a terminal of its own: our end of it, and the process."""
    ours, theirs = pty.openpty()
    arguments = [sys.executable, "-m", "enginehouse", "top", "--interval", "10ms", "--url", gateway.url]
    environment = {**os.environ, **WIDE, "LINES": "50", "TERM": "xterm", "ENGINEHOUSE_KEY": "k-admin"}
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        yield ours, top
        with suppress(OSError):  # at the end; a terminal reads until then, or its program would wait for it
            while os.read(ours, 65536):
                pass
        assert top.wait(20) == 0
    os.close(ours)


def until_shown(terminal: int, text: bytes, times: int = 1) -> bytes:
    """What the terminal shows until ``text`` has come so many times."""
    shown = b""
    while shown.count(text) < times:
        shown += os.read(terminal, 65536)
    return shown


def test_top_shows_the_gateway_until_it_is_interrupted(gateway: RunningGateway) -> None:
    with terminal(gateway) as (ours, top):
        shown = until_shown(ours, b"rack/gpu:1", times=3)
        top.send_signal(signal.SIGINT)
    assert b"live requests: 0" in shown
    assert b"phase" in shown


def test_top_is_steered_by_keys(gateway: RunningGateway, engine: SimEngine, http: httpx.Client) -> None:
    engine.fault("slow", per_chunk="1h", count=1)
    body = {"model": "llama3:8b", "prompt": "Hello", "stream": True}
    headers = {"authorization": "Bearer k-admin", "x-request-id": "long-one"}
    with http.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=headers) as reply:
        lines = reply.iter_lines()
        next(lines)
        with terminal(gateway) as (ours, _):
            assert b"s sort" in until_shown(ours, b"long-one")
            os.write(ours, b"s/nothing-has-this\r")
            until_shown(ours, b"Live requests: 0, by tokens, only with 'nothing-has-this'")
            os.write(ours, b"/\x1bmgone\r")
            until_shown(ours, b"'gone' does not serve 'llama3:8b'")
            os.write(ours, b"cy")
            until_shown(ours, b"long-one is cancelled")
            os.write(ours, b"q")
        assert '"cancelled"' in "".join(lines)


def test_one_look_of_top_as_json(run: Callable[..., Result], gateway: RunningGateway) -> None:
    def is_shown(status: Status) -> bool:
        look = json.loads(run("top", "--json").stdout)
        assert look["requests"] == []
        return bool(look["status"]["backends"] == status["backends"])

    gateway.until(is_shown)


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        (["drain"], "", ["gone", "rack/gpu:1"]),
        (["drain"], "ra", ["rack/gpu:1"]),
        (["move", "id", "--to"], "g", ["gone"]),
        (["move"], "", []),
        (["load"], "gpt", ["gpt-4"]),
    ],
)
def test_names_of_the_gateway_are_completed(
    gateway: RunningGateway, words: list[str], begun: str, completed: list[str]
) -> None:
    assert _completions([*words[:1], "--url", gateway.url, "--key", "k-admin", *words[1:]], begun) == completed


@pytest.mark.parametrize("options", [["--key", "wrong"], ["--url", "http://127.0.0.1:9"], ["--url", "nonsense"]])
def test_nothing_is_completed_where_no_gateway_answers(gateway: RunningGateway, options: list[str]) -> None:
    assert _completions(["drain", "--url", gateway.url, *options], "") == []


def _completions(words: list[str], begun: str) -> list[str]:
    shell = ShellComplete(enginehouse, {}, "enginehouse", "_ENGINEHOUSE_COMPLETE")
    return [item.value for item in shell.get_completions(words, begun)]


def test_a_chat_answers_a_prompt_and_says_how_fast(run: Callable[..., Result]) -> None:
    answer = run("chat", "gpt-4", "Hello", "--stats", key="k-app")

    assert len(answer.stdout.split()) > 3
    assert re.search(r"first token after \d+\.\d\d s, \d+ tokens, [\d.]+ tokens/s", answer.stderr)


def test_a_chat_with_an_unknown_model_names_those_that_are_there(run: Callable[..., Result]) -> None:
    assert "'llama3:8b'" in str(run("chat", "llama3:7b", "Hello").exception)


def test_ps_shows_what_can_answer(run: Callable[..., Result]) -> None:
    [loaded] = json.loads(run("ps", "--json").stdout)
    assert (loaded["model"], loaded["backend"], loaded["condition"]["word"]) == ("llama3:8b", "rack/gpu:1", "ready")
    assert "llama3:8b" in run("ps").stdout


def test_a_route_is_explained_by_the_running_gateway(run: Callable[..., Result], gateway: RunningGateway) -> None:
    body = json.dumps({"model": "gpt-4", "messages": [{"role": "user", "content": "Hello"}]})
    arguments = ["explain", "route", "--request", "-", "--url", gateway.url, "--admin-key", "k-admin", "--json"]
    explained = json.loads(CliRunner().invoke(enginehouse, arguments, input=body).stdout)
    assert (explained["resolved"], explained["chosen"]) == ("llama3:8b", "llama3:8b@rack/gpu:1")


def test_logs_as_json_have_an_object_for_each_line(run: Callable[..., Result]) -> None:
    lines = [json.loads(line) for line in run("logs", "--json").stdout.splitlines()]
    assert lines
    assert all(line.keys() == {"backend", "line"} for line in lines)


def test_the_address_that_clients_of_openai_use_is_the_gateways_too(gateway: RunningGateway) -> None:
    environment = {"ENGINEHOUSE_KEY": "k-admin"}
    result = CliRunner(env=environment).invoke(enginehouse, ["status", "--json", "--url", f"{gateway.url}/v1/"])
    assert json.loads(result.stdout)["strategy"] == "cache_aware"


def test_the_status_says_whether_the_gateway_is_compiled_as_the_version_does(run: Callable[..., Result]) -> None:
    compiled = json.loads(run("status", "--json").stdout)["compiled"]
    version = CliRunner().invoke(enginehouse, ["--version"]).stdout
    assert version.endswith(", compiled\n" if compiled else ", pure Python\n")
