from __future__ import annotations

import ast
import inspect
import re

import pytest

import enginehouse
from enginehouse import testing
from enginehouse._door import MODULES
from tests.support.paths import DOCS


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps ``__all__`` in."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_the_door_offers_exactly_what_it_says() -> None:
    assert all(getattr(enginehouse, name) is not None for name in enginehouse.__all__)
    assert set(MODULES) == set(enginehouse.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(enginehouse, "nothing")  # noqa: B009 - mypy knows that there is none


def test_the_door_finds_each_name_where_type_checkers_do() -> None:
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(enginehouse))) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if (node.module or "").startswith("enginehouse.")]
    found = {alias.name: node.module for node in own for alias in node.names}
    assert found == {**MODULES, "MODULES": "enginehouse._door"}


def test_what_the_door_offers_is_sorted() -> None:
    assert enginehouse.__all__ == sorted(enginehouse.__all__, key=order)


def test_the_kit_offers_exactly_what_it_says() -> None:
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(testing))) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if (node.module or "").startswith("enginehouse.")]
    assert {alias.name for node in own for alias in node.names} == set(testing.__all__)
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(testing, "nothing")  # noqa: B009 - mypy knows that there is none
    assert testing.__all__ == sorted(testing.__all__, key=order)


def test_every_name_is_in_the_reference() -> None:
    hooks, types = ((DOCS / "reference" / page).read_text("utf-8") for page in ("hooks.md", "types.md"))
    explained = set(re.findall(r"^`(\w+)`: ", hooks, re.MULTILINE)) | set(
        re.findall(r"^#### (\w+)$", types, re.MULTILINE)
    )

    assert {*enginehouse.__all__, *testing.__all__} <= explained
