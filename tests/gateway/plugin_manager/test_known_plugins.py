"""Plugins that are not bundled are found by name."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from enginehouse import ConfigError
from enginehouse.cli import enginehouse
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.known_plugins import known_plugins
from tests.support.paths import ROOT


@pytest.mark.parametrize("driver", ["ollama", "olama"])
def test_an_unknown_type_says_what_to_install(driver: str) -> None:
    registry = load_plugins(PluginSettings(enabled=[])).registry

    with pytest.raises(ConfigError, match=r"'ollama' comes with enginehouse-ollama: https://.*/enginehouse-ollama"):
        registry.get("driver", driver)


def test_known_plugins_are_searched() -> None:
    found = json.loads(CliRunner().invoke(enginehouse, ["plugins", "search", "discoverer", "--json"]).stdout)

    assert [each["name"] for each in found] == ["enginehouse-kubernetes"]
    assert "No known plugin" in CliRunner().invoke(enginehouse, ["plugins", "search", "zzz"]).stdout


def registered(folder: Path) -> set[str]:
    """The types that a distribution has, as its source and its entry points show them."""
    [init] = folder.glob("src/*/__init__.py")
    points = msgspec.toml.decode((folder / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    found = {f"command:{name}" for name in points.get("enginehouse.commands", ())}
    for function in ast.walk(ast.parse(init.read_text())):
        if isinstance(function, ast.FunctionDef) and function.name.startswith("register_"):
            kind = function.name.removeprefix("register_").removesuffix("s")
            calls = [each for each in ast.walk(function) if isinstance(each, ast.Call) and each.args]
            found |= {f"{kind}:{each.args[0].value!s}" for each in calls if isinstance(each.args[0], ast.Constant)}
    return {each for each in found if not each.startswith("command:import")}


@pytest.mark.parametrize("folder", sorted((ROOT / "contrib").glob("enginehouse-*")), ids=lambda folder: folder.name)
def test_the_plugins_beside_the_core_are_known(folder: Path) -> None:
    [plugin] = [each for each in known_plugins() if each.name == folder.name]

    assert {each.replace("routes:", "route:") for each in plugin.types} == registered(folder)
