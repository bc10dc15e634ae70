from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import sim
from enginehouse_sim.simulator.serve.command import serve

OLD_FLAGS = [
    *(
        "--host",
        "--port",
        "--control-port",
        "--model",
        "--ttft",
        "--tpot",
        "--concurrency",
        "--context-length",
        "--seed",
    ),
    *(
        "--api-key",
        "--start-delay",
        "--vision",
        "--no-vision",
        "--tools",
        "--no-tools",
        "--json-mode",
        "--no-json-mode",
    ),
]


def test_it_is_served_by_the_command_line_too() -> None:
    assert sim.commands["serve"] is serve
    asked = CliRunner().invoke(sim, ["serve", "--help"])
    assert asked.exit_code == 0
    for flag in [*OLD_FLAGS, "--max-num-seqs", "--max-model-len", "--profile", "--role", "--lora-modules"]:
        assert flag in asked.output


def test_a_profile_that_is_not_there_is_named() -> None:
    ended = CliRunner().invoke(serve, ["--profile", "h100"])
    assert ended.exit_code == 1
    assert "There is no profile 'h100'" in str(ended.exception)


@pytest.mark.parametrize(
    ("package", "flags", "extra"),
    [
        ("grpc", ["--llumlet-port", "0"], "llumlet"),
        ("google.protobuf", ["--llumlet-port", "0"], "llumlet"),
        ("zmq", ["--kv-events-config", '{"enable_kv_cache_events": true}'], "kv-events"),
    ],
)
def test_the_extra_that_an_option_needs_is_named(package: str, flags: list[str], extra: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None; from enginehouse_sim.simulator.serve import command; "
    words = [sys.executable, "-c", script + "command.serve()", "--port", "0", *flags]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.count("\n")) == (1, 1)
    assert f"pip install 'enginehouse[{extra}]'" in ended.stdout
