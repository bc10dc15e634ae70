"""Every import that a page shows runs on the samples, and what it writes passes the check."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.testing import PlayedServer
from tests.plugins.importers.test_samples import MODELFILE, SAMPLES, SECRETS
from tests.support.paths import ROOT

PAGES = ROOT / "docs/how-to/coming-from"
SAMPLE_OF = {"llama-swap": "llama_swap.yaml", "litellm": "litellm.yaml", "olla": "olla.yaml"}
SHOWN = [
    (page.name, command)
    for page in sorted(PAGES.glob("*.md"))
    for command in re.findall(r"enginehouse (import [^`\n]+)", page.read_text("utf-8"))
    if "..." not in command
]


class Ollama(PlayedServer):
    def get(self, path: str) -> tuple[int, object]:
        return (200, {"models": [{"name": "llama3:latest", "size": 1}]}) if path == "/api/tags" else (404, {})


@pytest.mark.parametrize(("page", "command"), SHOWN)
def test_a_shown_import_runs(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    words = shlex.split(command)
    if words[1] in SAMPLE_OF:
        shutil.copy(SAMPLES / SAMPLE_OF[words[1]], "config.yaml")
    shutil.copy(SAMPLES / "nexus.toml", "nexus.toml")
    shutil.copy(SAMPLES / "presets.ini", "models.ini")
    Path("cat.Modelfile").write_text(MODELFILE, "utf-8")
    with Ollama() as server:
        done = run(*(word.replace("http://127.0.0.1:11434", server.url) for word in words))
    if "--output" not in words:
        Path("enginehouse.toml").write_text(done, "utf-8")
    run("check", "--config", "enginehouse.toml")


def run(*command: str) -> str:
    done = CliRunner().invoke(enginehouse, command)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_pages_show_imports_of_every_program() -> None:
    shown = {command.split()[1] for _, command in SHOWN}
    assert shown == {"llama-swap", "litellm", "olla", "ollama", "vllm-router", "sglang-router", "nexus", "llama-server"}
