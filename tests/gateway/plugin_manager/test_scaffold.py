from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from enginehouse import PluginError
from enginehouse.cli import enginehouse
from enginehouse.plugin_manager.kinds import KINDS
from enginehouse_kit.scaffold import write_plugin
from tests.support.paths import ROOT
from tests.support.plugins import PipInstall, RunPython, RunTests

EVERY_KIND = ",".join(kind.name for kind in KINDS)


def new(*arguments: str) -> Result:
    return CliRunner().invoke(enginehouse, ["plugins", "new", *arguments])


@pytest.mark.parametrize("name", ["night-watch", "enginehouse-night-watch"])
def test_new_writes_the_files_of_a_plugin(tmp_path: Path, name: str) -> None:
    result = new(name, "--directory", str(tmp_path))

    folder = tmp_path / "enginehouse-night-watch"
    assert result.exit_code == 0
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        ".github/workflows/test.yml",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/enginehouse_night_watch/__init__.py",
        "src/enginehouse_night_watch/filter.py",
        "src/enginehouse_night_watch/py.typed",
        "tests/test_filter.py",
        "tests/test_plugin.py",
    ]


def test_the_pip_of_a_fresh_environment_understands_what_new_says(tmp_path: Path) -> None:
    result = new("shift", "--directory", str(tmp_path))

    texts = [path.read_text() for path in (tmp_path / "enginehouse-shift").rglob("*") if path.is_file()]
    assert "pip install --editable '.[test]'" in result.output
    assert not any("--group" in text or "dependency-groups" in text for text in [result.output, *texts])
    assert any('test = ["mypy>=1.10", "pytest>=8"]' in text for text in texts)


def test_a_plugin_of_one_kind_has_a_type_of_its_own_name(tmp_path: Path) -> None:
    new("night-watch", "--kind", "scorer", "--directory", str(tmp_path))

    package = tmp_path / "enginehouse-night-watch" / "src" / "enginehouse_night_watch"
    assert 'register("night_watch", NightWatchScorer)' in (package / "__init__.py").read_text()


def test_what_new_writes_is_formatted(tmp_path: Path) -> None:
    assert new("everything", "--kind", EVERY_KIND, "--directory", str(tmp_path)).exit_code == 0
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Night", "night_watch", "-night", ""])
def test_new_refuses_an_invalid_name(tmp_path: Path, name: str) -> None:
    result = new("--directory", str(tmp_path), "--", name)

    assert isinstance(result.exception, PluginError)
    assert not list(tmp_path.iterdir())


def test_new_refuses_an_unknown_kind(tmp_path: Path) -> None:
    result = new("shift", "--kind", "filter,scoer", "--directory", str(tmp_path))

    assert str(result.exception).startswith(
        "plugin 'shift': unknown kind 'scoer' (did you mean \"scorer\"? known: extractor, filter, "
    )
    assert not list(tmp_path.iterdir())


def test_new_does_not_touch_a_folder_that_exists(tmp_path: Path) -> None:
    new("shift", "--directory", str(tmp_path))
    result = new("shift", "--directory", str(tmp_path))

    assert "already exists" in str(result.exception)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new plugin with a type of every kind, in a folder whose options for pytest are not its own."""
    folder = tmp_path_factory.mktemp("projects")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --of-another-project\n")
    assert new("shift", "--kind", EVERY_KIND, "--directory", str(folder)).exit_code == 0
    return folder / "enginehouse-shift"


@pytest.fixture(scope="module")
def site(project: Path, pip_install: PipInstall) -> Path:
    return pip_install(project)


@pytest.mark.long
def test_a_new_plugin_of_every_kind_passes_its_own_tests(site: Path, project: Path, run_tests: RunTests) -> None:
    tests = run_tests(site, project)

    assert tests.returncode == 0, tests.stdout
    assert int(tests.stdout.rpartition(" passed")[0].split()[-1]) >= len(KINDS)


@pytest.mark.long
def test_a_new_plugin_of_every_kind_passes_the_check_of_plugins(site: Path, run_python: RunPython) -> None:
    check = run_python(site, "-m", "enginehouse", "plugins", "check")

    assert check.returncode == 0, check.stderr


@pytest.mark.timeout(900)  # mypy reads the whole of Enginehouse, unless its cache has that from `make lint`
def test_a_new_plugin_of_every_kind_is_typed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [str(project / "src"), str(project / "tests")]
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(folders))
    command = [sys.executable, "-m", "mypy", *folders]  # strict, as pyproject.toml has it
    mypy = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert mypy.returncode == 0, mypy.stdout


def test_a_new_plugin_of_every_kind_is_tidy(project: Path) -> None:
    style = ["--isolated", "--target-version", "py310", "--line-length", "120"]
    for command in (["check", "--select", "E,F,I,UP,B"], ["format", "--diff"]):
        arguments = ["-m", "ruff", *command, *style, "src", "tests"]
        ruff = subprocess.run([sys.executable, *arguments], cwd=project, capture_output=True, text=True)

        assert ruff.returncode == 0, ruff.stdout


@pytest.mark.parametrize("name", ["metrics", "model-list"])
def test_new_refuses_the_name_of_a_bundled_plugin(tmp_path: Path, name: str) -> None:
    with pytest.raises(PluginError, match="Enginehouse has a plugin of this name"):
        write_plugin(name, tmp_path)


def test_a_command_may_have_a_name_that_no_function_can_have(tmp_path: Path) -> None:
    folder = write_plugin("lambda", tmp_path, ["command"])
    compile((folder / "src/enginehouse_lambda/command.py").read_text(), "command.py", "exec")
    assert 'lambda = "enginehouse_lambda.command:lambda_"' in (folder / "pyproject.toml").read_text()
