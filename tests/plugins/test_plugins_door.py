from __future__ import annotations

from types import ModuleType

import enginehouse
from enginehouse import testing


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps ``__all__`` in."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def public_names(module: ModuleType) -> set[str]:
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name for name, value in found.items() if not isinstance(value, ModuleType)} - {"annotations"}


def test_the_door_offers_exactly_what_it_says() -> None:
    assert public_names(enginehouse) == set(enginehouse.__all__)


def test_what_the_door_offers_is_sorted() -> None:
    assert enginehouse.__all__ == sorted(enginehouse.__all__, key=order)


def test_the_kit_offers_exactly_what_it_says() -> None:
    assert public_names(testing) == set(testing.__all__)
    assert testing.__all__ == sorted(testing.__all__, key=order)
