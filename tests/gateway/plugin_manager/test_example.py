from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.plugins import PipInstall, RunPython, RunTests

EXAMPLE = ROOT / "examples" / "plugin-nightshift"
GUARDS = ROOT / "examples" / "plugin-guards"
INTERCEPTORS = ROOT / "examples" / "plugin-interceptors"
TYPES = {("filter", "backend_names"), ("scorer", "backend_preference"), ("strategy", "packed")}


@pytest.fixture(scope="module")
def site(pip_install: PipInstall) -> Path:
    return pip_install(EXAMPLE, GUARDS, INTERCEPTORS)  # pip takes longer to start than to install one more


@pytest.mark.long
def test_the_installed_example_is_listed_with_its_three_types(site: Path, run_python: RunPython) -> None:
    listing = run_python(site, "-c", "from enginehouse.cli import main; main()", "plugins", "list", "--json")

    rows = [row for row in json.loads(listing.stdout) if row["name"] == "nightshift"]
    assert {(row["kind"], row["type"]) for row in rows} == TYPES
    assert {(row["distribution"], row["version"], row["bundled"]) for row in rows} == {
        ("enginehouse-nightshift", "0.1.0", False)
    }


@pytest.mark.long
@pytest.mark.parametrize("example", [EXAMPLE, GUARDS, INTERCEPTORS], ids=lambda folder: folder.name)
def test_an_example_passes_its_own_tests(example: Path, site: Path, run_tests: RunTests) -> None:
    tests = run_tests(site, example)

    assert tests.returncode == 0, tests.stdout
