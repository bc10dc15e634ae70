from __future__ import annotations

import re
from typing import Any

import msgspec

from enginehouse.plugin_manager.kinds import KINDS
from tests.support.paths import ROOT


def project() -> dict[str, Any]:
    return msgspec.toml.decode((ROOT / "pyproject.toml").read_text(), type=dict[str, Any])


def folders() -> set[str]:
    return {path.name for path in (ROOT / "plugins").iterdir() if (path / "__init__.py").exists()}


def test_every_bundled_plugin_is_in_the_wheel() -> None:
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert set(packages) == {"gateway/enginehouse", *(f"plugins/{name}" for name in folders())}


def test_every_bundled_plugin_has_its_entry_point() -> None:
    points = project()["project"]["entry-points"]["enginehouse"]

    assert points == {name.removeprefix("enginehouse_"): name for name in folders()}


def test_the_title_of_a_bundled_plugins_page_is_its_entry_point_and_its_purpose() -> None:
    for name in folders():
        title = (ROOT / "plugins" / name / "README.md").read_text("utf-8").partition("\n")[0]
        assert title.startswith(f"# `{name.removeprefix('enginehouse_')}`: ")


def test_the_import_contracts_know_every_bundled_plugin() -> None:
    linter = project()["tool"]["importlinter"]
    core, plugins = [contract for contract in linter["contracts"] if contract["type"] == "forbidden"]

    assert set(linter["root_packages"]) == {"enginehouse", *folders()}
    assert set(plugins["source_modules"]) == set(core["forbidden_modules"]) == folders()


def test_hooks_are_called_by_the_plugin_manager_only() -> None:
    callers = {
        path.relative_to(ROOT).as_posix()
        for root in ("gateway", "plugins")
        for path in (ROOT / root).rglob("*.py")
        if re.search(r"manager\.hook\b", path.read_text())
    }

    assert callers == {"gateway/enginehouse/plugin_manager/discovery.py"}


def test_every_kind_has_a_name_and_a_hook_of_its_own() -> None:
    assert len({kind.name for kind in KINDS}) == len({kind.hook for kind in KINDS}) == len(KINDS)
