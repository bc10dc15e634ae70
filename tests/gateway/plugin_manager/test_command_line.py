from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse_kit import expect as timing
from tests.support.plugins import Install

WORKS = """
    class Works(Filter):
        def keep(self, requirements, candidates):
            return candidates

        def why(self, requirements, candidate):
            return "it does not work"
"""
REGISTER = """
    @hookimpl
    def register_filters(register):
        register("works", Works)
"""
FILTER = WORKS + REGISTER


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
        "state": "ok",
    } in listed
    assert {row["bundled"] for row in listed} == {True, False}


def test_a_broken_plugin_is_listed_with_its_error(install: Install, tmp_path: Path) -> None:
    install("shift", "import no_such_library")
    [file] = tmp_path.glob("*shift*.py")

    listed = json.loads(run("list", "--json").stdout)

    assert [row for row in listed if row["name"] == "shift"] == [
        {
            "name": "shift",
            "type": None,
            "kind": None,
            "distribution": "enginehouse-shift",
            "version": "1.2.3",
            "bundled": False,
            "state": "broken",
            "error": f"cannot be imported: ModuleNotFoundError: No module named 'no_such_library' ({file}:2)",
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


def test_check_counts_plugins_and_types(install: Install) -> None:
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


NOTHING = "it registers nothing: implement a hook such as 'register_filters', marked with '@enginehouse.hookimpl'"
IMPURE = """
    class Impure(Filter):
        calls = 0
        def keep(self, requirements, candidates):
            self.calls += 1
            return candidates[: self.calls % 2]
        def why(self, requirements, candidate):
            return "every second time"

    @hookimpl
    def register_filters(register):
        register("impure", Impure)
"""


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("", NOTHING),
        ("@hookimpl\ndef register_filters(register): pass", NOTHING),
        (
            WORKS + "        def __init__(self, size):\n            pass\n" + REGISTER,
            "the filter 'works' cannot be used: it has no 'Config', so its constructor must take no argument: "
            "declare its parameters in a 'Config'",
        ),
        (
            "    import msgspec\n"
            + WORKS
            + "        class Config(msgspec.Struct):\n            size: int = 1\n"
            + REGISTER,
            "the filter 'works' cannot be used: its constructor must take one argument, its 'Config'",
        ),
        (
            WORKS + "        def __init__(self):\n            raise OSError('no profile')\n" + REGISTER,
            "the filter 'works' cannot be made: OSError: no profile",
        ),
        (IMPURE, "the filter 'impure' breaks a rule: keep must give the same answer to the same question"),
        (
            WORKS.replace("return candidates", "return candidates[0:1] if candidates[0] else []") + REGISTER,
            "the filter 'works' failed in the check of its kind: IndexError: list index out of range",
        ),
        (
            "@hookimpl\ndef register_routes(register): register('pages', lambda: 7)",
            "the routes 'pages' breaks a rule: the factory must return a list of Starlette routes, got 7",
        ),
        (
            "@hookimpl\ndef register_commands(register): ...",
            "'register_commands' is no hook any more: name each command in "
            "[project.entry-points.'enginehouse.commands'], as in: hello = 'my_plugin.commands:hello'",
        ),
    ],
)
def test_check_finds_what_loading_does_not(install: Install, source: str, fault: str) -> None:
    install("shift", source)

    result = run("check")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"plugin 'shift' from enginehouse-shift 1.2.3: {fault}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("serve", "there is already a command 'serve' in Enginehouse: give it another name"),
        ("hey", "the command 'hey' is not a click command: 7"),
    ],
)
def test_check_looks_at_commands(install: Install, name: str, fault: str) -> None:
    made = "import click\nhey = lambda: 7\nserve = click.Command('serve', help='Help.', callback=lambda: None)"
    install("shift", made, commands={name: name})

    result = run("check")

    assert result.exit_code == 1
    assert result.stderr == f"plugin 'shift' from enginehouse-shift 1.2.3: {fault}\n"


def test_check_names_a_command_of_no_plugin(install: Install, tmp_path: Path) -> None:
    install("shift", FILTER)
    [entry_points] = tmp_path.glob("*.dist-info/entry_points.txt")
    entry_points.write_text(entry_points.read_text() + "\nhey = elsewhere.commands:hey\n")

    result = run("check")

    assert result.exit_code == 1
    assert "the command belongs to no plugin: its distribution has none in 'elsewhere'" in result.stderr


@pytest.mark.parametrize(
    "group", ["enginehouse-plugins", "enginehouse.plugins", "enginehouse_plugin", "Enginehouse", "enginehose"]
)
def test_check_names_an_entry_point_in_a_wrong_group(install: Install, tmp_path: Path, group: str) -> None:
    install("shift", FILTER)
    [entry_points] = tmp_path.glob("*.dist-info/entry_points.txt")
    entry_points.write_text(entry_points.read_text().replace("[enginehouse]", f"[{group}]"))

    result = run("check")

    assert result.exit_code == 1
    assert result.stderr == (
        f"plugin 'shift' from enginehouse-shift 1.2.3: the entry-point group '{group}' is not read: "
        "use [project.entry-points.enginehouse]\n"
    )


def test_check_leaves_the_groups_of_other_programs_alone(install: Install, tmp_path: Path) -> None:
    install("shift", FILTER)
    [entry_points] = tmp_path.glob("*.dist-info/entry_points.txt")
    entry_points.write_text(entry_points.read_text() + "[enginehouse_shift.rules]\none = shift\n[engine]\ntwo = x\n")

    assert run("check").exit_code == 0


def test_a_type_that_needs_parameters_is_left_to_its_own_tests(install: Install) -> None:
    install("shift", "    import msgspec\n" + IMPURE.replace("calls = 0", NEEDS_SIZE))

    result = run("check")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == ["Not tried, left to the tests of their plugins: filter 'impure'"]


def test_check_names_a_type_that_it_does_not_try(install: Install) -> None:
    install("shift", SIGNED)

    result = run("check")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == ["Not tried, left to the tests of their plugins: interceptor 'signed'"]
    assert json.loads(run("check", "--json").stdout)["untried"] == ["interceptor 'signed'"]


SIGNED = """
    from enginehouse_kit.interceptors import Interceptor

    class Signed(Interceptor):
        def answer(self, request):
            return "no filter"

    @hookimpl
    def register_interceptors(register):
        register("signed", Signed)
"""


NEEDS_SIZE = """calls = 0
        class Config(msgspec.Struct):
            size: int
        def __init__(self, config): ...
"""


def test_check_prints_json(install: Install) -> None:
    install("shift", IMPURE)

    result = run("check", "--json")

    checked = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (checked["ok"], checked["warnings"]) == (False, [])
    assert checked["faults"] == [
        {
            "plugin": "shift",
            "distribution": "enginehouse-shift",
            "version": "1.2.3",
            "problem": "the filter 'impure' breaks a rule: keep must give the same answer to the same question",
        }
    ]


def test_a_slow_plugin_is_a_warning_not_a_fault(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("shift", FILTER)
    monkeypatch.setattr(timing, "perf_counter", lambda: next(SECONDS))

    result = run("check")

    assert result.exit_code == 0
    assert result.stderr == (
        "warning: filter 'works' of plugin 'shift' (enginehouse-shift 1.2.3): "
        "keep took 1000 ms; more than 50 ms delay every request of the gateway\n"
    )


SECONDS = count()


def test_the_list_shows_empty_and_disabled_plugins(install: Install, tmp_path: Path) -> None:
    install("shift", FILTER)
    install("empty", "")
    install("zebra", FILTER.replace("works", "other"))
    config = tmp_path / "gateway.toml"
    config.write_text('[plugins]\ndisabled = ["zebra"]\n')

    listed = json.loads(run("list", "--json", "--config", str(config)).stdout)

    own = {row["name"]: (row["state"], row["type"]) for row in listed if not row["bundled"]}
    assert own == {"shift": ("ok", "works"), "empty": ("empty", None), "zebra": ("disabled", None)}


def test_the_list_reads_the_allow_list_of_the_configuration(install: Install, tmp_path: Path) -> None:
    install("shift", FILTER)
    config = tmp_path / "gateway.toml"
    config.write_text("[plugins]\nenabled = []\n")

    listed = json.loads(run("list", "--json", "--config", str(config)).stdout)

    assert [row["state"] for row in listed if not row["bundled"]] == ["disabled"]


def test_the_list_refuses_a_configuration_that_is_named_and_wrong(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[plugin]\n")

    assert "unknown key" in str(run("list", "--config", str(config)).exception)


def test_the_list_is_whole_when_it_is_no_terminal(install: Install) -> None:
    name = "a-plugin-with-a-name-that-is-longer-than-a-terminal-of-eighty-columns-is-wide"
    install(name, FILTER)

    row = next(line for line in run("list").stdout.splitlines() if "works" in line)

    assert f"enginehouse-{name}" in row


def test_check_says_all_that_is_wrong(install: Install) -> None:
    install("shift", "import no_such_library")
    install("zebra", "@hookimpl\ndef register_filter(register): pass")

    result = run("check")

    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "plugin 'shift' from enginehouse-shift 1.2.3",
        "plugin 'zebra' from enginehouse-zebra 1.2.3",
    ]
