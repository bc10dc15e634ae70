from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import ConfigError, EnginehouseError

CONFIG = """
[routing]
strategy = "smart"
[backends.a]
url = "http://127.0.0.1:1"
models = ["llama3:8b"]
[backends.b]
url = "http://127.0.0.1:2"
priority = 10
[backends.b.models."llama3:8b"]
vision = false
context_length = 100
[routing.aliases]
"gpt-4" = "llama3:8b"
[routing.fallbacks]
"mistral:7b" = ["llama3:8b"]
"""
HELLO = {"model": "llama3:8b", "messages": [{"role": "user", "content": "Hello there"}]}
PARTS = {"priority": 100, "load": 100, "latency": 100}

Route = Callable[..., Result]
Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def route(tmp_path: Path) -> Route:
    """Run ``explain route``; the request and the state are written to files."""

    def run(
        *flags: str, request: object = HELLO, state: object = None, config: str = CONFIG, stdin: str | None = None
    ) -> Result:
        (tmp_path / "enginehouse.toml").write_text(config)
        (tmp_path / "body.json").write_text(request if isinstance(request, str) else json.dumps(request))
        arguments = ["explain", "route", "--config", str(tmp_path / "enginehouse.toml"), *flags]
        if stdin is None:
            arguments += ["--request", str(tmp_path / "body.json")]
        if state is not None:
            (tmp_path / "state.json").write_text(state if isinstance(state, str) else json.dumps(state))
            arguments += ["--state", str(tmp_path / "state.json")]
        return CliRunner(env={"COLUMNS": "200"}).invoke(enginehouse, arguments, input=stdin)

    return run


@pytest.fixture
def explain(route: Route) -> Explain:
    """The explanation that ``--json`` prints."""

    def run(*flags: str, **files: Any) -> dict[str, Any]:
        result = route("--json", *flags, **files)
        assert result.exit_code == 0, result.output
        explanation: dict[str, Any] = json.loads(result.stdout)
        return explanation

    return run


def test_the_explanation_has_the_shape_that_is_promised(explain: Explain) -> None:
    explanation = explain()

    assert list(explanation) == [
        "requested",
        "resolved",
        "reason",
        "attempted",
        "requirements",
        "candidates",
        "prefix",
        "chosen",
        "error",
    ]
    assert explanation.pop("requirements")["estimated_tokens"] == 2
    best, second = explanation.pop("candidates")
    assert best == {
        "replica": "llama3:8b@a",
        "backend": "a",
        "model": "llama3:8b",
        "score": 100,
        "parts": PARTS,
        "slots": None,
        "free": None,
        "engine_waiting": None,
        "kv_usage": None,
        "figures_age_ms": None,
        "cached_tokens": None,
        "backlog_s": None,
        "ms_per_token": None,
        "ms_per_output_token": None,
        "evicts": [],
        "dropped_by": None,
        "why": None,
    }
    assert (second["score"], second["parts"]) == (95, PARTS | {"priority": 90})
    assert explanation == {
        "requested": "llama3:8b",
        "resolved": "llama3:8b",
        "reason": "match",
        "attempted": ["llama3:8b"],
        "prefix": None,
        "chosen": "llama3:8b@a",
        "error": None,
    }


def test_an_alias_and_a_fallback_are_explained(explain: Explain) -> None:
    alias = explain(request={**HELLO, "model": "gpt-4"})
    fallback = explain(request={**HELLO, "model": "mistral:7b"})

    assert (alias["reason"], alias["attempted"], alias["resolved"]) == ("alias", ["gpt-4", "llama3:8b"], "llama3:8b")
    assert (fallback["reason"], fallback["attempted"]) == ("fallback", ["mistral:7b", "llama3:8b"])


def test_the_state_says_how_the_backends_are(explain: Explain) -> None:
    busy = explain(state={"backends": {"a": {"healthy": True, "pending": 40, "avg_latency_ms": 250}}})
    down = explain(state={"backends": {"a": {"healthy": False}}})
    draining = explain(state={"backends": {"a": {"draining": True}}})

    assert busy["candidates"][0]["parts"] == {"priority": 100, "load": 60, "latency": 75}
    assert busy["chosen"] == "llama3:8b@b"
    for explanation, why in ((down, "backend 'a' is unhealthy"), (draining, "backend 'a' is being drained")):
        dropped = explanation["candidates"][0]
        assert (dropped["dropped_by"], dropped["why"]) == ("health", why)
        assert explanation["chosen"] == "llama3:8b@b"


def test_a_filter_says_why_it_dropped_a_candidate(explain: Explain) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}

    explanation = explain(request={**HELLO, "messages": [{"role": "user", "content": [image]}]})

    assert explanation["requirements"]["needs_vision"] is True
    assert explanation["candidates"][1]["dropped_by"] == "capabilities"
    assert "vision" in explanation["candidates"][1]["why"]


def test_that_nothing_can_serve_is_an_explanation_too(explain: Explain) -> None:
    unknown = explain(request={**HELLO, "model": "nothing"})
    down = explain(state={"backends": {"a": {"healthy": False}, "b": {"healthy": False}}})

    assert (unknown["chosen"], unknown["error"]["code"]) == (None, "model_not_found")
    assert (down["chosen"], down["error"]["code"]) == (None, "no_healthy_backend")


@pytest.mark.parametrize("body", ["{", "[]", '{"messages": []}', '{"model": ""}', '{"model": "m", "messages": 7}'])
def test_a_body_that_is_wrong_is_explained_in_the_same_shape(explain: Explain, body: str) -> None:
    explanation = explain(request=body)

    assert explanation["error"]["code"] == "invalid_request"
    assert explanation["error"]["details"] == {}
    del explanation["error"]
    assert explanation == {
        "requested": "",
        "resolved": None,
        "reason": None,
        "attempted": [],
        "requirements": {},
        "candidates": [],
        "prefix": None,
        "chosen": None,
    }


def test_the_body_may_be_for_another_endpoint(explain: Explain) -> None:
    explanation = explain("--path", "/v1/completions", request={"model": "llama3:8b", "prompt": "x" * 404})

    assert explanation["requirements"]["path"] == "/v1/completions"
    assert explanation["candidates"][1]["dropped_by"] == "context_length"


def test_the_body_may_come_from_standard_input(explain: Explain) -> None:
    assert explain("--request", "-", stdin=json.dumps(HELLO))["chosen"] == "llama3:8b@a"


def test_without_json_there_is_a_table_and_a_verdict(route: Route) -> None:
    chosen = route(state={"backends": {"b": {"healthy": False}}}).stdout
    refused = route(request={**HELLO, "model": "nothing"}).stdout

    assert "llama3:8b@a" in chosen
    assert "is unhealthy" in chosen
    assert chosen.splitlines()[-1] == "'llama3:8b' goes to llama3:8b@a (reason: match)"
    assert refused.splitlines()[-1] == "refused (model_not_found): Model 'nothing' not found"


def test_the_models_of_an_engine_can_only_be_known_from_the_state(route: Route) -> None:
    config = '[backends.a]\nurl = "http://127.0.0.1:1"\n'

    unknown = route("--json", config=config)
    given = route("--json", config=config, state={"backends": {"a": {"models": ["llama3:8b"]}}})

    assert "the models of 'a' are not configured" in unknown.stderr
    assert json.loads(unknown.stdout)["error"]["code"] == "model_not_found"
    assert given.stderr == ""
    assert json.loads(given.stdout)["chosen"] == "llama3:8b@a"


def test_without_a_configuration_the_embedded_default_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = ["explain", "route", "--request", "-", "--json"]

    result = CliRunner().invoke(enginehouse, arguments, input=json.dumps({**HELLO, "model": "gpt-4"}))

    assert json.loads(result.stdout)["chosen"] == "sim-large@sim-large"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"backends": {"bb": {}}}, "There is no backend 'bb'; did you mean \"b\"?"),
        ({"backends": {"a": {"helthy": True}}}, "helthy"),
        ({"backends": {"a": {"pending": -1}}}, "pending"),
        ("{", "is not the state of a fleet"),
    ],
)
def test_a_state_that_cannot_be_is_an_error(route: Route, state: object, message: str) -> None:
    result = route("--json", state=state)

    assert isinstance(result.exception, EnginehouseError)
    assert message in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize("flag", ["--request", "--state"])
def test_a_file_that_cannot_be_read_is_an_error(route: Route, flag: str) -> None:
    result = route("--request", "-", flag, "/no/such/file", stdin=json.dumps(HELLO))

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "/no/such/file: cannot be read: No such file or directory"


TWO_STAGES = """
[routing]
strategy = "llumnix_load"
[rescheduling]
enabled = true
[backends.reads]
driver = "sim"
url = "http://127.0.0.1:1"
models = ["m"]
role = "prefill"
[backends.answers]
driver = "sim"
url = "http://127.0.0.1:2"
models = ["m"]
role = "decode"
"""


def test_a_view_gives_the_strategy_its_figures(explain: Explain, route: Route, tmp_path: Path) -> None:
    status = {"num_total_gpu_tokens": 1000, "num_used_gpu_tokens": 250}
    instances = [
        {"id": "reads", "role": "prefill", "status": {**status, "num_uncomputed_tokens_all_waiting_prefills": 7}},
        {"id": "answers", "role": "decode", "status": status},
    ]
    (tmp_path / "view.json").write_text(json.dumps({"now_ms": 0, "instances": instances}))
    view = ("--view", str(tmp_path / "view.json"))
    request = {**HELLO, "model": "m"}

    explanation = explain(*view, config=TWO_STAGES, request=request)
    assert (explanation["prefill"], explanation["chosen"]) == ("m@reads", "m@answers")
    assert [each["parts"] for each in explanation["candidates"]] == [{"load": 7}, {"decode_load": 0.25}]
    assert "m@reads reads the prompt" in route(*view, config=TWO_STAGES, request=request).output
    without = explain(config=TWO_STAGES, request=request)
    assert (without["prefill"], without["chosen"]) == ("m@reads", "m@answers"), "the roles are configured"
    assert [each["parts"] for each in without["candidates"]] == [{}, {}]
    embeddings = explain(*view, "--path", "/v1/embeddings", config=TWO_STAGES, request={"model": "m", "input": "x"})
    assert (embeddings["chosen"], "prefill" in embeddings) == ("m@reads", False)


def test_a_view_has_the_models_that_are_not_configured(route: Route, tmp_path: Path) -> None:
    (tmp_path / "view.json").write_text('{"now_ms": 0, "instances": [{"id": "gpu-1", "models": ["m"]}]}')
    config = '[backends.gpu-1]\nurl = "http://127.0.0.1:1"'

    result = route("--view", str(tmp_path / "view.json"), config=config, request={**HELLO, "model": "m"})

    assert "m@gpu-1" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("path", "code"), [("/v1/chat/completions", "no_healthy_backend"), ("/v1/responses", "invalid_request")]
)
def test_servers_that_serve_nothing_alone_are_passed_over(explain: Explain, path: str, code: str) -> None:
    """One is down, or the endpoint has no pairs: as ``serve`` answers it."""
    config = TWO_STAGES.replace('"sim"', '"sglang"')
    down = {"backends": {"answers": {"healthy": path == "/v1/responses"}}}
    explanation = explain("--path", path, config=config, request={**HELLO, "model": "m"}, state=down)
    assert (explanation["chosen"], explanation["error"]["code"]) == (None, code)
    assert explanation["candidates"][0]["dropped_by"] == "role"


def test_either_server_counts_tokens(explain: Explain) -> None:
    config = TWO_STAGES.replace('"sim"', '"sglang"')
    counted = explain("--path", "/tokenize", config=config, request={"model": "m", "prompt": "x"})
    assert counted["chosen"] == "m@reads"


def test_headers_and_the_key_of_the_request_count(explain: Explain) -> None:
    rules = (
        CONFIG
        + """
[[routing.rules]]
header = "x-tier: gold"
key = "team-*"
backends = ["b"]
"""
    )
    gold = explain("--header", "X-Tier: gold", "--key", "team-1", config=rules)
    assert gold["chosen"] == "llama3:8b@b"
    assert gold["candidates"][0]["dropped_by"] == "rule"
    assert explain("--header", "x-tier: gold", config=rules)["chosen"] == "llama3:8b@a"


def test_a_header_without_a_value_is_refused(route: Route) -> None:
    result = route("--header", "x-tier")
    assert result.exit_code == 2
    assert "write 'NAME: VALUE'" in result.output
