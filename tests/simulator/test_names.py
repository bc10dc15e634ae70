"""Class names in the simulated engine are unique, and none of them is a word that the gateway uses otherwise."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import enginehouse_sim
from enginehouse._door import public_names

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


def test_no_class_has_a_name_of_the_door_or_a_word_of_the_design() -> None:
    assert WORDS.union(public_names("enginehouse")).intersection(class_names()) == set()
