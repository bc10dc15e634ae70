"""One word, one meaning: class names of the core; and the maps of packages name what is there."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

CORE = ROOT / "gateway/enginehouse"
WORDS = {
    "Model": None,
    "Host": "engines/host.py",
    "Backend": None,
    "Replica": None,
    "Driver": "interfaces/drivers.py",
    "Requirements": "domain/requirements.py",
    "Candidate": "domain/replica.py",
    "Route": "domain/replica.py",
    "Ticket": "domain/ticket.py",
    "Swap": None,
    "Relay": "relay/relay.py",
    "Instance": None,
    "Continuation": "domain/continuation.py",
    "Migration": None,
}
"""Each of the field's words, and the module whose class bears it alone, if there is one."""


def classes() -> dict[str, list[str]]:
    """The modules that define each class of the core, by its name without leading underscores."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(file.relative_to(CORE).as_posix())
    return found


def test_no_class_name_is_used_twice() -> None:
    assert {name: modules for name, modules in classes().items() if len(modules) > 1} == {}


def test_a_word_of_the_field_names_nothing_else() -> None:
    found = classes()
    assert {word: found.get(word, []) for word in WORDS} == {
        word: [module] if module else [] for word, module in WORDS.items()
    }


def packages() -> Iterator[Path]:
    for folder in (CORE, ROOT / "plugins"):
        yield from sorted(folder.rglob("__init__.py"))


def test_the_maps_of_packages_name_what_is_there() -> None:
    gone = []
    for package in packages():
        _, _, shown = (ast.get_docstring(ast.parse(package.read_bytes()), clean=False) or "").partition("::\n")
        names = ", ".join(re.findall(r"^ {4}(\S.*?) {2,}\S", shown, re.MULTILINE)).rstrip("/").replace("/,", ",")
        there = {file.stem for file in package.parent.iterdir()}
        gone += [(package.parent.name, each) for each in names.split(", ") if each and not fnmatch.filter(there, each)]
    assert gone == []


def test_the_tables_of_packages_name_what_is_there() -> None:
    known = {file.name for folder in ("gateway", "plugins", "tests") for file in (ROOT / folder).rglob("*.py")}
    tables = [*(ROOT / "plugins").rglob("README.md")]
    named = {each for table in tables for each in re.findall(r"`(?:\w+/)*(\w+\.py)`", table.read_text())}
    assert named - known == set()
