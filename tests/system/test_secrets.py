"""Keys of clients and of engines stay where they belong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support.paths import SUPPORT

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


# --- secrets everywhere

PLANTED = {
    name: f"s3cret-{name.lower().replace('_', '-')}-7f3a"
    for name in (
        "ADMIN_KEY", "FILE_KEY", "REMOTE_KEY", "PLAIN_KEY", "OTHERS_TOKEN", "OWN_TOKEN", "PLAIN_TOKEN", "CLIENTS_KEY"
    )
}  # fmt: skip
TELLTALE = "7f3a"


@pytest.fixture(scope="module")
def remote() -> Iterator[SimEngine]:
    with SimEngine("m", api_key=PLANTED["REMOTE_KEY"]) as engine:
        yield engine


@pytest.fixture(scope="module")
def planted(remote: SimEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, Path, str]]:
    """A gateway with secrets in every place, the folder of its engine's environment, and its configuration."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "key").write_text(PLANTED["FILE_KEY"])
    stub = f"exec {sys.executable} -S -E {SUPPORT / 'stub_engine.py'} --model $1 --port $2"
    config = f"""
[telemetry]
log_level = "debug"
[auth]
keys = [
  {{ name = "admin", key = "env:ADMIN_KEY", admin = true }},
  {{ name = "file", key = "file:{folder / "key"}", models = ["m", "own"] }},
  {{ name = "plain", key = "{PLANTED["PLAIN_KEY"]}" }},
]
[backends.good]
driver = "sim"
url = "{remote.url}"
api_key = "env:REMOTE_KEY"
[models.own]
driver = "sim"
command = '''sh -c "env > {folder}/started; {stub}" sh ${{model}} ${{port}}'''
stop_command = '''sh -c "env > {folder}/stopped; kill ${{pid}}"'''
env = {{ OWN = "${{env:OWN_TOKEN}}", PLAIN_TOKEN = "{PLANTED["PLAIN_TOKEN"]}" }}
[models.fails]
driver = "sim"
command = '''sh -c "env; exit 1" ${{port}}'''
[models.other]
driver = "sim"
command = "false ${{port}} ${{env:OTHERS_TOKEN}}"
"""
    read = ("ADMIN_KEY", "REMOTE_KEY", "OTHERS_TOKEN", "OWN_TOKEN")
    environment = {name: PLANTED[name] for name in read} | {"ENGINEHOUSE_KEY": PLANTED["ADMIN_KEY"]}
    with RunningGateway(config, environment, key=PLANTED["ADMIN_KEY"]) as gateway:
        gateway.until_health(good="healthy")
        yield gateway, folder, config


def test_planted_secrets_come_up_nowhere(
    planted: tuple[RunningGateway, Path, str], remote: SimEngine, http: httpx.Client
) -> None:
    gateway, folder, _ = planted
    remote.clear()
    admin = bearer(PLANTED["ADMIN_KEY"])
    clients = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "cookie")
    answers = []
    for header in clients:
        for key in ("ADMIN_KEY", "FILE_KEY", "PLAIN_KEY", "CLIENTS_KEY"):
            headers = {header: f"Bearer {PLANTED[key]}" if header == "authorization" else PLANTED[key]}
            for model in ("m", "own", "nothing"):
                body = {"model": model, "prompt": "x"}
                answers.append(http.post(f"{gateway.url}/v1/completions", json=body, headers=headers))
            answers.append(http.get(f"{gateway.url}/upstream/m/v1/models", headers=headers))
    failing = [{"model": model, "prompt": "x"} for model in ("fails", "other")]
    answers += [http.post(f"{gateway.url}/v1/completions", json=body, headers=admin) for body in failing]
    pages = ("/api/status", "/api/requests", "/api/decisions", "/metrics", "/running", "/logs", "/api/logs/fails")
    answers += [http.get(gateway.url + path, headers=admin) for path in pages]
    answers.append(http.post(f"{gateway.url}/api/reload?dry_run=true", headers=admin))
    with http.stream("GET", f"{gateway.url}/api/events", headers=admin) as events:
        assert TELLTALE not in next(events.iter_text())
    answers.append(http.post(f"{gateway.url}/api/models/own/unload", headers=admin))

    assert {200, 401, 403, 404, 503} <= {answer.status_code for answer in answers}
    for answer in answers:
        assert TELLTALE not in answer.text + str(answer.headers), answer.request.url
    assert TELLTALE not in gateway.log + gateway.greeting
    assert remote.requests()
    for request in remote.requests():
        assert request.header("authorization") == f"Bearer {PLANTED['REMOTE_KEY']}"
        assert str(request.headers).count(TELLTALE) == 1
    for file in ("started", "stopped"):
        seen = set(re.findall(f"s3cret-[a-z-]*-{TELLTALE}", (folder / file).read_text()))
        assert seen == {PLANTED["OWN_TOKEN"], PLANTED["PLAIN_TOKEN"]}, file


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_check_prints_no_planted_secret(
    planted: tuple[RunningGateway, Path, str], monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    _, folder, config = planted
    for name, secret in PLANTED.items():
        monkeypatch.setenv(name, secret)
    (folder / "enginehouse.toml").write_text(config)
    command = [sys.executable, "-m", "enginehouse", "check", "--config", "enginehouse.toml", *flags]
    told = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert told.returncode == 0, told.stderr
    assert TELLTALE not in told.stdout + told.stderr
    assert "env:ADMIN_KEY" in told.stdout
