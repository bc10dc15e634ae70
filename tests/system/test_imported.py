"""A configuration of llama-swap with real llama-server lines, imported and served."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.gateway import RunningGateway
from tests.support.plain_httpx import post
from tests.support.real_engines import find_llama_server

LLAMA_SWAP = """\
healthCheckTimeout: 60
macros:
  server: {program} --port ${{PORT}} -t 1 --no-warmup
models:
  small:
    cmd: ${{server}} -m {model} -c 512
    aliases: [gpt-4]
    ttl: 300
  large:
    cmd: |
      ${{server}} -m {model}
        -c 2048 -np 2
  whisper:
    cmd: whisper-server --port ${{PORT}} -m whisper.bin
"""


@pytest.mark.engine
def test_it_runs_and_says_what_it_does_not_take_over(tmp_path: Path) -> None:
    engine = find_llama_server()
    if engine is None:
        pytest.skip("no llama-server is installed: run `make engines`")
    source = tmp_path / "config.yaml"
    source.write_text(LLAMA_SWAP.format(program=engine.program, model=engine.model))
    done = CliRunner().invoke(enginehouse, ["import", "llama-swap", str(source)])
    assert done.exit_code == 0, done.output
    assert "--inference-path /v1/audio/transcriptions" in done.stderr
    with RunningGateway(done.stdout, {"PATH": os.environ["PATH"]}) as gateway:
        for model in ("small", "large", "gpt-4"):
            body = {"model": model, "prompt": "hello", "max_tokens": 2}
            answer = post(f"{gateway.url}/v1/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            states = {each["model"]: each["state"] for each in gateway.status()["replicas"]}
            other = "large" if model != "large" else "small"
            assert (states[other], states["whisper"]) == ("stopped", "stopped")
