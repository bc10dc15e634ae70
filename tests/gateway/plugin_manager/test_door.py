from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

import pytest

import enginehouse
from enginehouse import testing
from tests.support.paths import DOCS


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps ``__all__`` in."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def public_names(module: ModuleType) -> set[str]:
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name for name, value in found.items() if not isinstance(value, ModuleType)} - {"annotations"}


def test_the_door_offers_exactly_what_it_says() -> None:
    assert all(getattr(enginehouse, name) is not None for name in enginehouse.__all__)
    assert public_names(enginehouse) == set(enginehouse.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(enginehouse, "nothing")  # noqa: B009 - mypy knows that there is none


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
