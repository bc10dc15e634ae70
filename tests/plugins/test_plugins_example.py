from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin-nightshift"
TYPES = {("filter", "backend_names"), ("scorer", "backend_preference"), ("strategy", "packed")}


@pytest.fixture(scope="module")
def site(pip_install: Callable[[Path], Path]) -> Path:
    return pip_install(EXAMPLE)


def test_the_installed_example_is_listed_with_its_three_types(site: Path, run_python: Run) -> None:
    listing = run_python(site, "-c", "from enginehouse.cli import main; main()", "plugins", "list", "--json")

    rows = [row for row in json.loads(listing.stdout) if row["name"] == "nightshift"]
    assert {(row["kind"], row["type"]) for row in rows} == TYPES
    assert {(row["distribution"], row["version"], row["bundled"]) for row in rows} == {
        ("enginehouse-nightshift", "0.1.0", False)
    }


def test_the_registry_makes_what_the_example_registers(site: Path, run_python: Run) -> None:
    script = """
from enginehouse.config.schema import Plugins
from enginehouse.plugin_manager.discovery import load_plugins

registry = load_plugins(Plugins()).registry
for kind, type, parameters in [
    ("filter", "backend_names", {"drop": ["gpu-1"]}),
    ("scorer", "backend_preference", {"prefer": ["gpu-*"]}),
    ("strategy", "packed", {"limit": 4}),
]:
    print(registry.create(kind, type, parameters).__class__.__name__)
"""
    made = run_python(site, "-c", script)

    assert made.stdout.split() == ["BackendNames", "BackendPreference", "Packed"], made.stderr


def test_the_example_passes_its_own_tests(site: Path, run_python: Run) -> None:
    tests = run_python(site, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(EXAMPLE / "tests"))

    assert tests.returncode == 0, tests.stdout
