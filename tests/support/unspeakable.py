"""Objects of plugins that cannot be shown."""

from __future__ import annotations


class Unspeakable:
    """Fails when it is shown, compared or asked for its length."""

    def __repr__(self) -> str:
        raise RuntimeError("a broken __repr__")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("a broken __eq__")

    def __bool__(self) -> bool:
        raise RuntimeError("a broken __bool__")

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]


class UnspeakableError(Exception):
    """Fails when it is shown."""

    def __repr__(self) -> str:
        raise RuntimeError("a broken __repr__")

    __str__ = __repr__
