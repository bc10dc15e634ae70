"""What commands say where people look for help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.gateway import RunningGateway
from tests.support.gguf_header import write_gguf


def run(*words: str) -> str:
    done = CliRunner().invoke(enginehouse, words)
    assert done.exit_code == 0, done.output
    return done.stderr


def test_usage_says_why_it_counts_nothing() -> None:
    with RunningGateway("") as gateway:
        assert "A gateway without keys records no usage" in run("usage", "--url", gateway.url)
    with RunningGateway("[[auth.keys]]\nname = 'ops'\nkey = 'ops-secret'\nadmin = true\n") as gateway:
        said = run("usage", "--url", gateway.url, "--key", "ops-secret")
        assert "No request of a key has ended" in said


def test_all_that_a_gateway_with_json_logs_prints_is_json() -> None:
    with RunningGateway("[telemetry]\nlog_format = 'json'\n") as gateway:
        lines = [json.loads(line) for line in (gateway.greeting + gateway.log).splitlines()]
        assert f"listening on {gateway.url}" in "".join(line["message"] for line in lines)


def test_run_finds_the_engines_that_a_checkout_built(tmp_path: Path) -> None:
    engines = tmp_path / "cache" / "enginehouse" / "engines"
    engines.mkdir(parents=True)
    program = engines / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = (
        "import shutil, enginehouse_offline.run as run; run._find_built_engines(); print(shutil.which('llama-server'))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert found.stdout.strip() == str(program)

    write_gguf(tmp_path / "m.gguf")
    for words in (["run", "m.gguf", "--port", "8123", "--save", "saved.toml"], ["check", "--config", "saved.toml"]):
        command = [sys.executable, "-m", "enginehouse", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert (done.returncode, "no program" in done.stderr) == (0, False), done.stderr
    assert "port = 8123" in done.stdout


def test_explain_swap_takes_a_word(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text("[models.a]\ndriver = 'sim'\n[models.b]\ndriver = 'sim'\n")
    runner = CliRunner()
    for words in (["a"], ["--target", "a"]):
        done = runner.invoke(enginehouse, ["explain", "swap", *words, "--running", "b", "--config", str(file)])
        assert done.stdout.startswith("'a' stops b"), done.output
    file.write_text(f"{file.read_text()}[routing.aliases]\nword = ['gone', 'a']\n")
    done = runner.invoke(enginehouse, ["explain", "swap", "word", "--running", "b", "--config", str(file)])
    assert done.stdout.startswith("'a' stops b"), done.output
    unknown = runner.invoke(enginehouse, ["explain", "swap", "other", "--config", str(file)])
    assert "give its --url" in str(unknown.exception)
    refused = runner.invoke(enginehouse, ["explain", "swap", "--config", str(file)])
    assert (refused.exit_code, "Name one model" in refused.output) == (2, True)


def test_explain_swap_asks_a_running_gateway() -> None:
    host = "[scheduling]\nswapper = 'memory'\n[hosts.local]\nmemory = '3GiB'\n"
    models = "".join(f"[models.{name}]\ndriver = 'sim'\nmemory = '2GiB'\n" for name in "ab")
    with RunningGateway(f"{host}{models}preload = true\n") as gateway:
        gateway.until(lambda status: status["replicas"][1]["state"] == "ready")
        done = CliRunner().invoke(enginehouse, ["explain", "swap", "a", "--url", gateway.url])
    assert done.stdout.startswith("'a' stops b"), done.output
