"""``enginehouse run``: models' files become a gateway."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from enginehouse.config.load_config import load_config
from enginehouse_kit.process import ServerProcess
from tests.support.gguf_header import write_gguf
from tests.support.plain_httpx import get, post
from tests.support.real_engines import RealEngine
from tests.support.real_gateways import llama_server

RUN = [sys.executable, "-m", "enginehouse", "run"]


def test_the_configuration_is_printed_and_can_be_loaded(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", general__architecture="llama")
    done = subprocess.run([*RUN, str(tmp_path), "--print-config"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    both = [*RUN, str(tmp_path), "--print-config", "--save", "saved.toml"]
    assert subprocess.run(both, capture_output=True, text=True, cwd=tmp_path).stdout == done.stdout
    assert (tmp_path / "saved.toml").read_text() == done.stdout
    (tmp_path / "enginehouse.toml").write_text(done.stdout)
    [(name, model)] = load_config(tmp_path / "enginehouse.toml", {}).config.models.items()
    assert (name, model.driver, model.path) == ("m", "llamacpp", str(tmp_path / "m.gguf"))


def test_a_missing_program_ends_it_with_how_to_get_it(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([*RUN, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1
    assert "'llama-server' on the PATH (`brew install llama.cpp`" in done.stderr
    assert "Traceback" not in done.stderr


class RunCommand:
    """``enginehouse run FOLDER`` with a real llama-server."""

    def __init__(self, engine: RealEngine, folder: Path, state: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEHOUSE_")}
        environment["PATH"] = f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"
        environment["ENGINEHOUSE_STATE_DIR"] = str(state)
        environment["LLAMA_ARG_THREADS"] = "1"  # two threads wait for each other for minutes on a busy machine
        self.log = state / "log"
        began = time.perf_counter()
        self.process = ServerProcess(
            [*RUN, str(folder), "--port", "0"], folder=folder, environment=environment, log=self.log
        )
        found = self.process.wait_for(re.compile(r"listening on (http://[^\s,]+)"))
        assert found is not None, self.log.read_text()
        self.url = found[1]
        self.listens_after = time.perf_counter() - began

    def ask(self, model: str) -> str:
        body = {"model": model, "prompt": "hello", "max_tokens": 4, "temperature": 0}
        answer = post(f"{self.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    def models(self) -> set[str]:
        return {entry["id"] for entry in get(f"{self.url}/v1/models").json()["data"]}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[RunCommand]:
    engine = llama_server()
    (tmp_path / "models").mkdir()
    (tmp_path / "state").mkdir()
    for name in ("first", "second"):
        shutil.copy(engine.model, tmp_path / "models" / f"{name}.gguf")
    command = RunCommand(engine, tmp_path / "models", tmp_path / "state")
    yield command
    command.process.end(signal.SIGKILL)


@pytest.mark.engine
def test_a_folder_is_served_and_nothing_is_left(command: RunCommand, tmp_path: Path) -> None:
    assert command.models() == {"first", "second"}
    began = time.perf_counter()
    assert command.ask("first")
    print(
        f"listens after {command.listens_after:.1f} s; a cold model answers {time.perf_counter() - began:.1f} s later"
    )
    assert command.ask("first") == command.ask("second") == command.ask("first"), "they are the same model"

    shutil.copy(tmp_path / "models" / "first.gguf", tmp_path / "models" / "third.gguf")
    end = time.monotonic() + 60
    while "third" not in command.models():
        assert time.monotonic() < end, command.log.read_text()
        time.sleep(0.1)
    assert command.ask("third") == command.ask("first")

    children = psutil.Process(command.process.pid).children(recursive=True)
    assert children
    assert command.process.end(signal.SIGINT) == 0
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
