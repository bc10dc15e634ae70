"""The distributions below ``contrib/``: each can be installed and passes its own tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from tests.support.paths import ROOT
from tests.support.plugins import PipInstall, RunPython

DISTRIBUTIONS = sorted(path.parent for path in (ROOT / "contrib").glob("*/pyproject.toml"))


@pytest.fixture(scope="module")
def site(pip_install: PipInstall) -> Path:
    """All of them: pip takes longer to start than to install one more."""
    return pip_install(*DISTRIBUTIONS)


@pytest.mark.long
def test_they_are_found_when_they_are_installed(site: Path, run_python: RunPython) -> None:
    listing = run_python(site, "-c", "from enginehouse.cli import main; main()", "plugins", "list", "--json")
    found = {row["name"] for row in json.loads(listing.stdout) if not row["bundled"]}
    for distribution in DISTRIBUTIONS:
        project = msgspec.toml.decode((distribution / "pyproject.toml").read_text())["project"]
        assert project["entry-points"]["enginehouse"].keys() <= found


def test_none_imports_another_which_only_this_folder_installs_beside_it() -> None:
    modules = {distribution: distribution.name.replace("-", "_") for distribution in DISTRIBUTIONS}
    for distribution, own in modules.items():
        sources = "".join(file.read_text("utf-8") for file in distribution.rglob("*.py"))
        imported = set(re.findall(r"^\s*(?:from|import) (enginehouse_\w+)", sources, re.MULTILINE))
        assert own in imported
        assert imported.isdisjoint(set(modules.values()) - {own}), distribution


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_it_passes_its_own_tests_by_the_command_of_its_readme(
    distribution: Path, site: Path, run_python: RunPython
) -> None:
    assert "\npytest\n" in (distribution / "README.md").read_text()
    tests = run_python(site, "-m", "pytest", "-p", "no:cacheprovider", cwd=distribution)
    assert tests.returncode == 0, tests.stdout
