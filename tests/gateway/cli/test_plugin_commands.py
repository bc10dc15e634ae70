from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import collect
from tests.support.plugins import Install

GREET = """
    import click
    import msgspec

    class Greeting:
        class Config(msgspec.Struct):
            whom: str = "you"

        def __new__(cls, config):
            @click.command()
            def greet():
                '''Say hello.'''
                click.echo(f"hello {config.whom}")

            return greet
"""
GREETS = {"greet": "Greeting"}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ENGINEHOUSE_CONFIG", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(enginehouse, arguments)


def test_a_plugins_command_runs_and_is_in_the_help(install: Install) -> None:
    install("greeter", GREET, commands=GREETS)

    assert run("greet").stdout == "hello you\n"
    assert re.search(r"greet +Say hello\.", run("--help").stdout)
    assert "Usage: enginehouse greet" in run("greet", "--help").stdout


def test_a_plugins_command_gets_its_parameters(install: Install, tmp_path: Path) -> None:
    install("greeter", GREET, commands=GREETS)
    (tmp_path / "enginehouse.toml").write_text('[plugins.greet]\nwhom = "world"\n')

    assert run("greet").stdout == "hello world\n"
    assert run("check").exit_code == 0
    (tmp_path / "enginehouse.toml").write_text('[plugins.greet]\nwho = "world"\n')
    assert "unknown parameter 'who' of the command 'greet' of plugin 'greeter'" in run("greet").stderr


def test_parameters_of_a_type_with_the_name_of_a_command_are_checked(tmp_path: Path) -> None:
    (tmp_path / "enginehouse.toml").write_text("[plugins.sim]\nwrong = 1\n")

    assert "unknown parameter 'wrong' of the driver 'sim'" in str(run("check").exception)


def test_a_bundled_plugin_that_is_disabled_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "enginehouse.toml").write_text('[plugins]\ndisabled = ["operations"]\n')

    assert "No such command 'drain': its plugin is disabled, or cannot be used." in run("drain", "--help").stderr
    assert "Did you mean 'check'?" in run("chck").stderr
    assert " drain " not in run("--help").stdout
    assert run("bench", "--help").exit_code == 0


def test_a_group_whose_plugin_is_disabled_says_why_it_is_empty(tmp_path: Path) -> None:
    assert "is disabled" not in run("plugins", "--help").stdout
    (tmp_path / "enginehouse.toml").write_text('[plugins]\ndisabled = ["kit"]\n')
    assert "None: the plugin that has them is disabled, or cannot be used." in run("plugins", "--help").stdout


def test_a_plugin_that_is_disabled_adds_nothing(install: Install, tmp_path: Path) -> None:
    install("greeter", GREET, commands=GREETS)
    (tmp_path / "enginehouse.toml").write_text('[plugins]\ndisabled = ["greeter"]\n')

    assert run("greet").exit_code == 2
    assert "greet" not in run("--help").stdout


def test_an_unknown_command_is_refused() -> None:
    result = run("no-such-command")

    assert result.exit_code == 2
    assert "No such command 'no-such-command'" in result.stderr


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [
        ("import no_such_library", "greet", "the command 'greet' cannot be made: ModuleNotFoundError"),
        ("", "greet", "the command 'greet' cannot be made: AttributeError"),
        ("Greeting = lambda: 1 / 0", "greet", "ZeroDivisionError: division by zero ("),
        ("Greeting = lambda: 1", "greet", "the command 'greet' is not a click command: 1"),
        (GREET, "serve", "there is already a command 'serve'"),
        (GREET, "serve it", "there is no group 'serve' that takes commands of plugins"),
        (GREET, "import more things", "there is no group 'import more'"),
    ],
)
def test_a_broken_command_is_a_warning_that_names_its_plugin(
    install: Install, source: str, name: str, problem: str
) -> None:
    install("greeter", source, commands={name: "Greeting"})

    result = run("--help")

    assert result.exit_code == 0
    assert "serve" in result.stdout
    assert result.stderr.startswith("warning: plugin 'greeter' from enginehouse-greeter 1.2.3: ")
    assert problem in result.stderr


def test_a_command_of_a_plugin_for_another_version_is_a_warning(install: Install, tmp_path: Path) -> None:
    install("greeter", GREET, commands=GREETS)
    [metadata] = tmp_path.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text() + "Requires-Dist: enginehouse<0.1\n")

    assert "it requires enginehouse<0.1, but " in run("greet").stderr


def test_a_broken_plugin_takes_no_other_with_it(install: Install) -> None:
    install("broken", "import no_such_library", commands=GREETS)
    install("greeter", GREET, commands={"hello": "Greeting"})

    result = run("hello")

    assert (result.stdout, result.stderr) == ("hello you\n", "")
    assert run("--help").stderr.count("plugin 'broken'") == 1


def test_a_command_imports_only_its_plugin(install: Install) -> None:
    install("greeter", GREET, commands=GREETS)
    install("slow", "raise RuntimeError('imported')")
    install("other", "raise RuntimeError('imported')", commands={"other": "Greeting"})

    result = run("greet")

    assert (result.stdout, result.stderr) == ("hello you\n", "")


def completed(*words: str) -> list[str]:
    """What a shell offers for the last of ``words``."""
    return [
        each.value
        for each in ShellComplete(enginehouse, {}, "enginehouse", "").get_completions([*words[:-1]], words[-1])
    ]


def test_a_shell_completes_commands_of_plugins_without_importing_them(install: Install) -> None:
    install("greeter", "raise RuntimeError('imported')", commands=GREETS)

    assert {"greet", "serve", "import"} <= set(completed(""))
    assert completed("gre") == ["greet"]
    assert "--help" in completed("--")


def test_a_plugin_adds_a_command_to_a_group(install: Install) -> None:
    install("greeter", GREET, commands={"import greetings": "Greeting"})

    assert run("import", "greetings").stdout == "hello you\n"
    assert re.search(r"greetings +Say hello\.", run("import", "--help").stdout)
    assert "greetings" not in run("--help").stdout
    assert completed("import", "gre") == ["greetings"]
    assert run("import greetings").exit_code == 2


def test_a_broken_table_leaves_our_own_and_bundled_commands(install: Install, tmp_path: Path) -> None:
    install("greeter", GREET, commands=GREETS)
    (tmp_path / "enginehouse.toml").write_text("[plugins]\ndisabled = 1\n")

    result = run("--help")

    assert result.exit_code == 0
    assert {"serve", "bench"} <= set(result.stdout.split())
    assert "greet" not in result.stdout.split()
    assert "commands of other plugins are not available: enginehouse.toml: plugins.disabled: " in result.stderr


@pytest.mark.parametrize("config", ["[serve]\n", '[[auth.keys]]\nname = "a"\nkey = "file:nowhere"\n'])
def test_commands_of_plugins_need_no_valid_configuration_but_their_own_table(
    install: Install, tmp_path: Path, config: str
) -> None:
    install("greeter", GREET, commands=GREETS)
    (tmp_path / "enginehouse.toml").write_text(f'[plugins.greet]\nwhom = "world"\n{config}')

    result = run("greet")

    assert (result.stdout, result.stderr) == ("hello world\n", "")


def test_a_variable_disables_a_plugin(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("greeter", GREET, commands=GREETS)
    monkeypatch.setenv("ENGINEHOUSE_PLUGINS_DISABLED", "greeter")
    monkeypatch.setenv("ENGINEHOUSE_SERVER_PORT", "none")

    assert run("greet").exit_code == 2


def test_the_help_imports_only_plugins_that_have_commands(install: Install) -> None:
    install("greeter", GREET, commands=GREETS)
    install("slow", "raise RuntimeError('imported')")

    result = run("--help")

    assert re.search(r"greet +Say hello\.", result.stdout)
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [["--version"], ["schema"], ["check", "--help"]])
def test_our_own_commands_load_no_plugins(install: Install, arguments: list[str]) -> None:
    install("greeter", "raise RuntimeError('loaded')", commands=GREETS)

    result = run(*arguments)

    assert (result.exit_code, result.stderr) == (0, "")


def test_the_command_line_is_also_a_module() -> None:
    told = subprocess.run([sys.executable, "-m", "enginehouse", "--version"], capture_output=True, text=True)

    assert told.stdout.startswith("enginehouse, version ")


def test_a_package_with_two_plugins_has_each_command_once(install: Install, tmp_path: Path) -> None:
    install("greeter", GREET, commands=GREETS)
    [entry_points] = tmp_path.glob("*.dist-info/entry_points.txt")
    entry_points.write_text(
        entry_points.read_text().replace("[enginehouse]", "[enginehouse]\nsecond = enginehouse_greeter")
    )

    assert run("greet").stdout == "hello you\n"
    assert collect(PluginSettings()).broken == ()
