"""The distributions below ``contrib/``: each installs by itself and passes its own tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.plugins import PipInstall, RunPython

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DISTRIBUTIONS = sorted(path.parent for path in (ROOT / "contrib").glob("*/pyproject.toml"))


@pytest.fixture(scope="module", params=DISTRIBUTIONS, ids=lambda folder: folder.name)
def distribution(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def site(distribution: Path, pip_install: PipInstall) -> Path:
    return pip_install(distribution)


def test_it_is_found_when_it_is_installed(distribution: Path, site: Path, run_python: RunPython) -> None:
    listing = run_python(site, "-c", "from enginehouse.cli import main; main()", "plugins", "list", "--json")
    entries = tomllib.loads((distribution / "pyproject.toml").read_text())["project"]["entry-points"]["enginehouse"]
    assert entries.keys() <= {row["name"] for row in json.loads(listing.stdout) if not row["bundled"]}


@pytest.mark.timeout(300)
def test_it_passes_its_own_tests_by_the_command_of_its_readme(
    distribution: Path, site: Path, run_python: RunPython
) -> None:
    assert "\npytest\n" in (distribution / "README.md").read_text()
    tests = run_python(site, "-m", "pytest", "-p", "no:cacheprovider", cwd=distribution)
    assert tests.returncode == 0, tests.stdout
