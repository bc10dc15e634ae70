"""The door and the test kit: each name stands once, can be imported, is in the reference and has a use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import enginehouse
from enginehouse import testing
from enginehouse._door import public_names
from tests.support.doc_pages import page_text
from tests.support.paths import DOCS, ROOT

DOOR, KIT = public_names("enginehouse"), public_names("enginehouse.testing")
CORE = ROOT / "gateway" / "enginehouse"
BOTH = pytest.mark.parametrize("package", [enginehouse, testing], ids=lambda package: package.__name__)


def listed(package: ModuleType) -> list[tuple[str | None, str | None]]:
    """The imports that type checkers see, with the names that they offer to others."""
    tree = ast.parse((CORE.parent / package.__name__.replace(".", "/") / "__init__.py").read_text("utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and "not" not in ast.unparse(node.test)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return [(alias.asname, node.module) for node in imports for alias in node.names]


@BOTH
def test_every_name_stands_once_where_type_checkers_see_it(package: ModuleType) -> None:
    offered = public_names(package.__name__)
    assert listed(package) == [(name, place.module) for name, place in offered.items()]
    assert all(place.section for place in offered.values())


@BOTH
def test_every_name_can_be_imported_and_no_other(package: ModuleType) -> None:
    space: dict[str, object] = {}
    exec(f"from {package.__name__} import *", space)
    assert None not in space.values()
    assert set(space) - {"__builtins__"} == set(public_names(package.__name__))
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        getattr(package, "nothing")  # noqa: B009 - mypy knows that there is none


def entries() -> Iterator[tuple[str, str]]:
    """Each name of the reference with the code and the names in its entry; prose does not count."""
    for page, heading in (("types.md", r"#### (\w+)"), ("hooks.md", r"`(\w+)`: ")):
        parts = re.split(f"^{heading}", page_text(DOCS / "reference" / page), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
            yield name, re.sub(r'""".*?"""', "", code, flags=re.DOTALL) + " ".join(re.findall(r"`[^`\n]+`", text))


def test_every_name_is_in_the_reference() -> None:
    names = [name for name, _ in entries()]
    assert {*DOOR, *KIT} <= set(names)
    assert len(names) == len(set(names))


def imported(file: Path) -> set[str]:
    """What ``file`` imports from the door."""
    imports = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports if node.module == "enginehouse" for alias in node.names}


def of_plugins() -> set[str]:
    """What the plugins of this repository import from the door."""
    files = [file for folder in ("plugins", "examples", "contrib") for file in (ROOT / folder).rglob("*.py")]
    return {name for file in files if "tests" not in file.relative_to(ROOT).parts for name in imported(file)}


def test_no_name_is_missing() -> None:
    assert of_plugins() - set(DOOR) == set()


def test_every_name_has_a_use() -> None:
    """A plugin imports it, a template has it, or the reference entry of another name that is in use shows it."""
    templates = (ROOT / "plugins" / "enginehouse_kit" / "template").rglob("*.tmpl")
    used = {word for file in templates for word in re.findall(r"\w+", file.read_text("utf-8"))} | of_plugins()
    shown = {name: set(re.findall(r"\w+", text)) & set(DOOR) for name, text in entries()}
    reached, found = set[str](), used & set(DOOR) | set(KIT)
    while found:
        reached |= found
        found = {name for each in found for name in shown[each]} - reached
    assert set(DOOR) - reached == set()


def test_a_name_that_has_moved_says_where_it_is() -> None:
    with pytest.raises(ImportError, match=r"^import 'VirtualGateway' from 'enginehouse_sim\.virtual'$"):
        exec("from enginehouse import VirtualGateway", {})
