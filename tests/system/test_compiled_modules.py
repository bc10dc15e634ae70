"""Which modules ``make compiled`` compiles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.compiled import MODULES, ROOT

COMPILED = {
    ".".join(Path(package).parts[1:]) + f".{module}": ROOT / package / f"{module}.py"
    for package, modules in MODULES.items()
    for module in modules
}
_CLASS = re.compile(r"^\s*class (\w+)(?:\(([^)]*)\))?:", re.MULTILINE)
_IMPORT = re.compile(r"^\s*from (\S+) import ([^(\n]+|\([^)]*\))", re.MULTILINE)
_WORD = re.compile(r"\w+")
_PARAMETERS = re.compile(r"\[[^]]*\]+")


def classes(text: str) -> Iterator[tuple[str, set[str]]]:
    """The classes of a module, each with the names of its bases, without their parameters."""
    return ((found[1], set(_WORD.findall(_PARAMETERS.sub("", found[2] or "")))) for found in _CLASS.finditer(text))


def imported(text: str) -> set[str]:
    """The full names of what a module imports with ``from``."""
    return {f"{found[1]}.{name}" for found in _IMPORT.finditer(text) for name in _WORD.findall(found[2])}


def test_every_listed_module_exists() -> None:
    assert [str(path) for path in COMPILED.values() if not path.is_file()] == []


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    """Python refuses to make such a class, but only where the base is really compiled. Protocols never are."""
    made = {
        f"{module}.{name}"
        for module, path in COMPILED.items()
        for name, bases in classes(path.read_text())
        if "Protocol" not in bases
    }
    folders = ("gateway", "plugins", "tests", "benchmarks", "contrib", "examples")
    interpreted = {path for folder in folders for path in (ROOT / folder).rglob("*.py")} - set(COMPILED.values())
    wrong = []
    for path in sorted(interpreted):
        text = path.read_text()
        seen = {full.rpartition(".")[2] for full in imported(text) & made}
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name, bases in classes(text) if bases & seen]
    assert wrong == []


def test_no_compiled_coroutine_awaits_in_a_finally() -> None:
    """After it, mypyc raises whatever exception Python handles at that moment, perhaps that of another task."""
    wrong = [
        f"{module}: line {each.lineno}"
        for module, path in COMPILED.items()
        for statement in ast.walk(ast.parse(path.read_text()))
        if isinstance(statement, ast.Try)
        for last in statement.finalbody
        for each in ast.walk(last)
        if isinstance(each, ast.Await)
    ]
    assert wrong == []
