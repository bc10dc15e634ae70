"""What the command line imports, and so how fast it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("enginehouse.app", "enginehouse.config.schema", "enginehouse.relay", "msgspec", "starlette", "uvicorn")
NOT_OF_THE_GATEWAY = {
    "google",
    "grpc",
    "httpx",
    "opentelemetry",
    "rich",
    "enginehouse_otlp.process.spans",
    "enginehouse_kit.testing",
    "enginehouse_bench.bench_command",
    "enginehouse_importers.commands",
    "enginehouse_sim.simulator",
}
NAMED = "import sys; from enginehouse.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"


def modules(*arguments: str, **variables: str) -> tuple[str, set[str]]:
    """What the command line prints, and the modules that it has imported then."""
    done = subprocess.run(
        [sys.executable, "-c", NAMED, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=50,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


def test_the_version_is_told_without_the_gateway() -> None:
    printed, imported = modules("--version")
    assert printed.startswith("enginehouse, version ")
    assert printed.endswith(("compiled\n", "pure Python\n"))
    assert imported.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("un", ["plain,undrain", "plain,unload"]),
        ("be", ["plain,bench"]),
        (
            "import ",
            [
                "plain,litellm",
                "plain,llama-server",
                "plain,llama-swap",
                "plain,nexus",
                "plain,olla",
                "plain,ollama",
                "plain,sglang-router",
                "plain,vllm-router",
            ],
        ),
    ],
)
def test_commands_are_completed_without_the_gateway(words: str, completed: list[str]) -> None:
    typed = {"COMP_WORDS": f"enginehouse {words}", "COMP_CWORD": str(1 + words.count(" "))}
    printed, imported = modules(**typed, _ENGINEHOUSE_COMPLETE="bash_complete")
    assert printed.split() == completed
    assert imported.isdisjoint(HEAVY)


@pytest.mark.parametrize("command", ["bench", "import llama-swap", "move"])
def test_the_help_of_a_plugins_command_imports_little(command: str) -> None:
    printed, imported = modules(*command.split(), "--help")
    assert printed.startswith(f"Usage: enginehouse {command} ")
    others = {
        "rich",
        "yaml",
        "enginehouse_kit.testing",
        "enginehouse_sim",
        "enginehouse.relay",
        "enginehouse.interfaces.drivers",
    }
    assert imported.isdisjoint(others)


def test_a_gateway_is_built_without_what_only_others_need(tmp_path: Path) -> None:
    """``check`` builds what ``serve`` builds. Spans are the exporter's business."""
    config = tmp_path / "enginehouse.toml"
    config.write_text('[telemetry]\ntraces = "otlp"\n[backends.a]\nurl = "http://127.0.0.1:9"\nmodels = ["m"]\n')
    printed, imported = modules("check", "--config", str(config))
    assert "has no errors" in printed
    assert "enginehouse.app.gateway" in imported
    assert imported.isdisjoint(NOT_OF_THE_GATEWAY)


def test_the_help_of_serve_imports_nothing_of_the_gateway() -> None:
    printed, imported = modules("serve", "--help")
    assert "  --take-over " in printed
    assert imported.isdisjoint(HEAVY)


def test_the_help_of_all_commands_imports_nothing_of_the_gateway() -> None:
    printed, imported = modules("--help")
    assert "  status " in printed
    assert imported.isdisjoint({"enginehouse.app", "enginehouse.http", "enginehouse.relay.relay", "uvicorn"})
