"""The public API: each name stands once, can be imported, is in the reference and has a use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from runpy import run_path

import msgspec
import pytest

import enginehouse
from enginehouse._moved import _INTERFACES, find
from enginehouse.plugin_manager.kinds import KINDS
from tests.support.doc_pages import page_text
from tests.support.paths import DOCS, ROOT

PUBLIC: Mapping[str, list[str]] = run_path(str(DOCS / "pages" / "types.py"))["public_names"]()
CORE = {module: names for module, names in PUBLIC.items() if module.partition(".")[0] == "enginehouse"}
CORE_NAMES = {name for names in CORE.values() for name in names if name != "__version__"}
FOLDER = ROOT / "gateway" / "enginehouse"
MOST_NAMES = 60


def test_type_checkers_see_the_names_that_are_imported_when_they_are_used() -> None:
    tree = ast.parse((FOLDER / "__init__.py").read_text("utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and "not" not in ast.unparse(node.test)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == enginehouse._MODULES


def test_what_every_plugin_needs_is_little() -> None:
    assert len(PUBLIC["enginehouse"]) <= MOST_NAMES


def test_every_kind_of_plugin_has_its_interface_and_its_check() -> None:
    interfaces = {kind.interface.__name__ for kind in KINDS if kind.interface}
    assert interfaces - {name for names in PUBLIC.values() for name in names} == set()
    assert {f"check_{kind.name}" for kind in KINDS} - set(PUBLIC["enginehouse_kit.testing"]) == set()


@pytest.mark.parametrize("module", list(PUBLIC))
def test_every_name_can_be_imported(module: str) -> None:
    assert [name for name in PUBLIC[module] if not hasattr(import_module(module), name)] == []


def test_every_module_says_what_it_is_for() -> None:
    """In the reference, because a compiled module has no docstring."""
    page = page_text(DOCS / "reference" / "types.md")
    assert [module for module in PUBLIC if not re.search(rf"^## `{module}`\n\n[A-Z].+\.$", page, re.MULTILINE)] == []


def test_every_name_stands_once() -> None:
    names = [name for names in PUBLIC.values() for name in names]
    assert len(names) == len(set(names))


def test_the_contracts_know_the_public_modules_and_all_others() -> None:
    contracts = msgspec.toml.decode((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [plugins] = [contract for contract in contracts if contract["name"] == "plugins import only the public modules"]
    packages = {f"enginehouse.{path.parent.name}" for path in FOLDER.glob("*/__init__.py")}
    assert set(plugins["forbidden_modules"]) == packages
    assert contracts[0]["layers"][0].split(" | ") == sorted(CORE.keys() - {"enginehouse"})


def entries() -> Iterator[tuple[str, str]]:
    """Each name of the reference with the code and the names in its entry; prose does not count."""
    for page, heading in (("types.md", r"### (\w+)"), ("hooks.md", r"`(\w+)`: ")):
        parts = re.split(f"^{heading}", page_text(DOCS / "reference" / page), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
            yield name, re.sub(r'""".*?"""', "", code, flags=re.DOTALL) + " ".join(re.findall(r"`[^`\n]+`", text))


def test_every_name_is_in_the_reference() -> None:
    names = [name for name, _ in entries()]
    assert {name for names in PUBLIC.values() for name in names} - {"__version__"} == set(names)
    assert len(names) == len(set(names))


def of_plugins() -> set[str]:
    """What the plugins of this repository import from the public modules of the core."""
    files = [file for folder in ("plugins", "examples", "contrib") for file in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(file.read_text("utf-8")) for file in files if "tests" not in file.relative_to(ROOT).parts]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports if node.module in CORE for alias in node.names}


def test_every_name_has_a_use() -> None:
    """A plugin imports it, a template has it, or the reference entry of another name that is in use shows it."""
    templates = (ROOT / "plugins" / "enginehouse_kit" / "template").rglob("*.tmpl")
    used = {word for file in templates for word in re.findall(r"\w+", file.read_text("utf-8"))} | of_plugins()
    shown = {name: set(re.findall(r"\w+", text)) & CORE_NAMES for name, text in entries()}
    reached, found = set[str](), used & CORE_NAMES
    while found:
        reached |= found
        found = {name for each in found for name in shown[each]} - reached
    assert CORE_NAMES - reached == set()


def moved() -> list[tuple[str, str]]:
    names: Mapping[str, str] = vars(import_module("enginehouse._moved"))["_NAMES"]
    return [(name, module) for module, text in names.items() for name in text.split()]


@pytest.mark.parametrize(("name", "module"), moved())
def test_a_name_that_has_moved_keeps_working_or_says_where_it_is(name: str, module: str) -> None:
    found = getattr(import_module(module), name)
    if module in CORE or module in _INTERFACES:
        assert getattr(enginehouse, name) is found
        assert name not in enginehouse.__all__
        return
    with pytest.raises(ImportError, match=rf"^import '{name}' from '{module}'$"):
        exec(f"from enginehouse import {name}", {})


@pytest.mark.parametrize(
    ("module", "name", "there"),
    [
        ("backends", "ScaleView", "scalers"),
        ("callers", "Limit", "limit_stores"),
        ("interceptors", "Refuse", "interceptors"),
        ("middleware", "ChosenInterceptor", "interceptors"),
        ("interceptors", "GuardAnswer", "guards"),
        ("rescheduling", "MigrationMeans", "rescheduling"),
        ("rescheduling", "Migration", "rescheduling"),
        ("protocols", "Translation", "protocols"),
        ("engine_caches", "BlocksStored", "block_events"),
    ],
)
def test_an_interface_of_the_kit_is_found_in_the_module_that_had_it(module: str, name: str, there: str) -> None:
    found = getattr(import_module(f"enginehouse_kit.{there}"), name)
    assert getattr(import_module(f"enginehouse.{module}"), name) is found
    with pytest.raises(ImportError):
        exec(f"from enginehouse.{module} import Nothing", {})


def test_a_name_that_is_internal_now_says_so() -> None:
    with pytest.raises(ImportError, match=r"^'LoadedConfig' is internal now: plugins have no use for it$"):
        find("LoadedConfig")


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'enginehouse' has no attribute 'nothing'"):
        getattr(enginehouse, "nothing")  # noqa: B009 - mypy knows that there is none


@pytest.mark.parametrize("module", ["enginehouse.testing", "enginehouse.testing.gateway"])
def test_the_test_kit_says_where_it_is(module: str) -> None:
    with pytest.raises(ImportError, match=r"^the test kit is 'enginehouse_kit\.testing' now"):
        import_module(module)
