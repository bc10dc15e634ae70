"""Rules of the modules that mypyc compiles, which the pure suite can check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from tests.gateway.test_imports import modules
from tests.support.paths import ROOT

MODULES = [
    ROOT / package / f"{module}.py"
    for package, modules in run_path(str(ROOT / "tools/compiled.py"))["MODULES"].items()
    for module in modules
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_no_constant_is_a_tuple_of_a_known_length(module: Path) -> None:
    """mypyc leaves such a tuple of numbers unset: the first use raises ``NameError``."""
    constants = [node for node in ast.parse(module.read_text("utf-8")).body if isinstance(node, ast.AnnAssign)]
    wrong = [
        node for node in constants if isinstance(node.value, ast.Tuple) and ast.unparse(node.annotation) == "Final"
    ]
    assert [ast.unparse(node.target) for node in wrong] == []


def without_types(field: Any) -> Iterator[type]:
    """The classes in a field's type whose own fields have types that mypyc drops."""
    if is_dataclass(field) or hasattr(field, "_fields"):
        yield field
    for each in get_args(field):
        yield from without_types(each)


def test_no_struct_is_decoded_with_a_class_of_a_compiled_module() -> None:
    """Processes could not read such structs from each other."""
    compiled = {str(module.relative_to(ROOT)) for module in MODULES}
    files = {name: str(path.relative_to(ROOT)) for name, path in modules().items()}
    core = [import_module(name) for name in files if name.startswith("enginehouse.") and name != "enginehouse.testing"]
    structs = {
        each
        for module in core
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    }
    found = {
        (struct.__name__, used.__name__)
        for struct in structs
        if files.get(struct.__module__, "") not in compiled
        for field in get_type_hints(struct).values()
        for used in without_types(field)
        if files.get(used.__module__, "") in compiled
    }
    assert len(structs) > 50
    assert found == set()
