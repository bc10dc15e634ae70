"""No circle of imports between modules. Between rooms and plugins, import-linter finds them too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCES = (ROOT / "gateway", ROOT / "plugins")
_GENERATED = "template"


def modules() -> dict[str, Path]:
    """Every module of the core and of the bundled plugins, by its name."""
    found = {}
    for root in SOURCES:
        for file in root.rglob("*.py"):
            *parents, name = file.relative_to(root).with_suffix("").parts
            if _GENERATED not in parents:
                found[".".join(parents if name == "__init__" else [*parents, name])] = file
    return found


def imported(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The modules that ``body`` imports, each with a name that is taken from it, which may be a module too."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)):
            yield from imported(node.body)


def graph(known: dict[str, Path]) -> dict[str, set[str]]:
    return {
        name: {
            inner if (inner := f"{module}.{taken}") in known else module
            for module, taken in imported(ast.parse(file.read_bytes()).body)
        }
        - {name}
        for name, file in known.items()
    }


def test_no_module_imports_itself_through_others() -> None:
    found = graph(modules())
    assert len(found) > 500
    TopologicalSorter(found).prepare()  # an error names the circle


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"from {other} import x\n")
    with pytest.raises(CycleError):
        TopologicalSorter(graph({name: tmp_path / f"{name}.py" for name in "ab"})).prepare()
