from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from enginehouse import PluginError
from enginehouse.cli import enginehouse

Install = Callable[..., None]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

FILTER = """
    class Works(Filter):
        def keep(self, requirements, candidates):
            return candidates

        def why(self, requirements, candidate):
            return "it does not work"

    @hookimpl
    def register_filters(register):
        register("works", Works)
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(enginehouse, ["plugins", *arguments])


def test_the_list_has_a_row_for_every_type(install: Install) -> None:
    install("shift", FILTER)

    listed = json.loads(run("list", "--json").stdout)

    assert {
        "name": "shift",
        "type": "works",
        "kind": "filter",
        "distribution": "enginehouse-shift",
        "version": "1.2.3",
        "bundled": False,
    } in listed
    assert {row["bundled"] for row in listed} == {True, False}


def test_a_broken_plugin_is_listed_with_its_error(install: Install) -> None:
    install("shift", "import no_such_library")

    listed = json.loads(run("list", "--json").stdout)

    assert [row for row in listed if row["name"] == "shift"] == [
        {
            "name": "shift",
            "type": None,
            "kind": None,
            "distribution": "enginehouse-shift",
            "version": "1.2.3",
            "bundled": False,
            "error": "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'",
        }
    ]
    assert "error" not in listed[0]


def test_what_a_plugin_prints_while_imported_does_not_spoil_the_json(install: Install) -> None:
    install("shift", "    print('hello')\n" + FILTER)

    result = run("list", "--json")

    assert "works" in [row["type"] for row in json.loads(result.stdout)]
    assert "hello" in result.stderr


def test_the_table_shows_types_and_broken_plugins(install: Install) -> None:
    install("shift", FILTER)
    install("zebra", "import no_such_library")

    result = run("list")

    assert result.exit_code == 0
    assert "works" in result.stdout
    assert "broken" in result.stdout
    assert "zebra from enginehouse-zebra 1.2.3: cannot be imported" in result.stderr


def test_check_counts_what_is_there(install: Install) -> None:
    before = run("check").stdout
    install("shift", FILTER)
    after = run("check")

    plugins, types = (int(word) for word in before.split() if word.isdigit())
    assert after.exit_code == 0
    assert after.stdout == f"{plugins + 1} plugins, {types + 1} types: ok\n"


@pytest.mark.parametrize(
    ("distribution", "module", "fault"),
    [
        ("nightly-shift", "enginehouse_shift", "its distribution must be named 'enginehouse-shift'"),
        ("enginehouse-shift", "shift_plugin", "its module must be named 'enginehouse_shift', not 'shift_plugin'"),
    ],
)
def test_check_keeps_the_name_rule(install: Install, distribution: str, module: str, fault: str) -> None:
    install("shift", FILTER, distribution=distribution, module=module)

    result = run("check")

    assert result.exit_code == 1
    assert result.stderr == f"plugin 'shift' from {distribution} 1.2.3: {fault}\n"
    assert "ok" not in result.stdout


def test_check_says_all_that_is_wrong(install: Install) -> None:
    install("shift", "import no_such_library")
    install("zebra", "@hookimpl\ndef register_filter(register): pass")

    result = run("check")

    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "plugin 'shift' from enginehouse-shift 1.2.3",
        "plugin 'zebra' from enginehouse-zebra 1.2.3",
    ]


@pytest.mark.parametrize("name", ["night-watch", "enginehouse-night-watch"])
def test_new_writes_the_files_of_a_plugin(tmp_path: Path, name: str) -> None:
    result = run("new", name, "--directory", str(tmp_path))

    folder = tmp_path / "enginehouse-night-watch"
    assert result.exit_code == 0
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "README.md",
        "pyproject.toml",
        "src/enginehouse_night_watch/__init__.py",
        "tests/test_enginehouse_night_watch.py",
    ]


@pytest.mark.parametrize("name", ["Night", "night_watch", "-night", ""])
def test_new_refuses_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    result = run("new", "--directory", str(tmp_path), "--", name)

    assert isinstance(result.exception, PluginError)
    assert not list(tmp_path.iterdir())


def test_new_does_not_touch_a_folder_that_exists(tmp_path: Path) -> None:
    run("new", "shift", "--directory", str(tmp_path))
    result = run("new", "shift", "--directory", str(tmp_path))

    assert "exists already" in str(result.exception)


def test_a_new_plugin_installs_and_passes_its_own_test(
    tmp_path: Path, pip_install: Callable[[Path], Path], run_python: Run
) -> None:
    run("new", "night-watch", "--directory", str(tmp_path))
    folder = tmp_path / "enginehouse-night-watch"

    site = pip_install(folder)
    tests = run_python(site, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error", str(folder))
    check = run_python(site, "-c", "from enginehouse.cli import main; main()", "plugins", "check")

    assert tests.returncode == 0, tests.stdout
    assert "3 passed" in tests.stdout
    assert check.returncode == 0, check.stderr
