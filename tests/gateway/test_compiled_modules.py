"""Rules of the modules that mypyc compiles, which the pure suite can check."""

from __future__ import annotations

import ast
from pathlib import Path
from runpy import run_path

import pytest

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
