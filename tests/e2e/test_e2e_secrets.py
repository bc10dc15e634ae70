"""Keys of clients and of engines stay where they belong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

ADMIN, CLIENT, ENGINE, WRONG = "adm1n-s3cret", "cl1ent-s3cret", "eng1ne-s3cret", "wr0ng-s3cret"
SECRETS = (ADMIN, CLIENT, ENGINE, WRONG)


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("m", api_key=ENGINE) as engine:
        yield engine


@pytest.fixture(scope="module")
def config(engine: SimEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    secret = tmp_path_factory.mktemp("secrets") / "client"
    secret.write_text(CLIENT)
    return f"""
[telemetry]
log_level = "debug"
[auth]
keys = [
  {{ name = "admin", key = "{ADMIN}", admin = true }},
  {{ name = "client", key = "file:{secret}" }},
]
[backends.good]
driver = "sim"
url = "{engine.url}"
api_key = "env:GOOD_KEY"
[backends.bad]
driver = "sim"
url = "{engine.url}"
models = ["bad"]
api_key = "{WRONG}"
[backends.gone]
url = "http://127.0.0.1:9"
models = ["gone"]
api_key = "{ENGINE}"
"""


@pytest.fixture(scope="module")
def gateway(config: str) -> Iterator[RunningGateway]:
    with RunningGateway(config, {"GOOD_KEY": ENGINE}, key=ADMIN) as gateway:
        gateway.until_health(good="healthy", gone="unhealthy")
        yield gateway


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def hidden(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def test_the_engine_gets_its_own_key_and_never_the_clients(
    gateway: RunningGateway, engine: SimEngine, http: httpx.Client
) -> None:
    engine.clear()
    for headers in (bearer(CLIENT), {"x-api-key": CLIENT}, {"api-key": CLIENT}):
        body = {"model": "m", "prompt": "x"}
        assert http.post(f"{gateway.url}/v1/completions", json=body, headers=headers).status_code == 200

    for request in engine.requests():
        assert request.header("authorization") == f"Bearer {ENGINE}"
        assert CLIENT not in str(request.headers)


def test_no_answer_and_no_log_line_shows_a_secret(
    gateway: RunningGateway, engine: SimEngine, http: httpx.Client
) -> None:
    url = gateway.url
    answers = [
        http.post(f"{url}/v1/completions", json={"model": model, "prompt": "x"}, headers=bearer(key))
        for model in ("m", "bad", "gone", "nothing", "")
        for key in (CLIENT, WRONG, ENGINE, ADMIN)
    ]
    engine.fault("drop")
    answers.append(http.post(f"{url}/v1/completions", json={"model": "m", "prompt": "x"}, headers=bearer(CLIENT)))
    engine.clear()
    for path in ("/api/status", "/api/requests", "/api/decisions", "/metrics", "/health", "/ready", "/v1/models"):
        answers += [http.get(url + path, headers=bearer(key)) for key in (ADMIN, CLIENT, WRONG)]
    answers.append(http.post(f"{url}/api/explain/route", json={"model": "m"}, headers=bearer(ADMIN)))
    answers.append(http.post(f"{url}/api/backends/{WRONG[:3]}/drain", headers=bearer(ADMIN)))

    assert {200, 401, 403, 404, 400, 502, 503} <= {answer.status_code for answer in answers}
    for answer in answers:
        assert hidden(answer.text), answer.request.url
        assert hidden(str(answer.headers)), answer.request.url
    assert hidden(gateway.log)
    assert hidden(gateway.greeting)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_check_masks_secrets(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    monkeypatch.setenv("GOOD_KEY", ENGINE)
    (tmp_path / "enginehouse.toml").write_text(config)

    command = [sys.executable, "-m", "enginehouse", "check", "--config", "enginehouse.toml", *flags]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert told.returncode == 0, told.stderr
    assert hidden(told.stdout + told.stderr)
    assert "env:GOOD_KEY" in told.stdout
    assert "***" in told.stdout


def test_the_environment_of_an_error_is_not_shown(config: str, tmp_path: Path) -> None:
    (tmp_path / "enginehouse.toml").write_text(config.replace('models = ["bad"]', "models = 7"))

    command = [sys.executable, "-m", "enginehouse", "serve", "--config", "enginehouse.toml", "--port", "0"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=30)

    assert told.returncode == 1
    assert "GOOD_KEY is not set" in told.stderr
    assert hidden(told.stdout + told.stderr)
