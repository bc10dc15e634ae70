"""Class names in the simulated engine are unique, and none of them is a word that the gateway uses otherwise."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from runpy import run_path

import enginehouse_sim
from tests.support.paths import DOCS

WORDS = {
    *("Model", "Host", "Backend", "Replica", "Driver", "Requirements", "Candidate", "Route", "Ticket", "Swap", "Relay"),
    *("Instance", "Continuation", "Migration"),
}


@cache
def class_names() -> list[str]:
    files = [path for path in Path(enginehouse_sim.__file__).parent.rglob("*.py") if not path.name.endswith("_pb2.py")]
    trees = [ast.parse(path.read_text()) for path in files]
    return [node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_class_name_stands_twice() -> None:
    assert [name for name, count in Counter(class_names()).items() if count > 1] == []


def test_no_class_has_a_public_name_or_a_word_of_the_design() -> None:
    public = run_path(str(DOCS / "pages" / "types.py"))["public_names"]()
    del public["enginehouse_kit.testing"]
    assert WORDS.union(*public.values()).intersection(class_names()) == set()
