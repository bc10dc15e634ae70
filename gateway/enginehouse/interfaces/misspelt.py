"""Finds methods whose names are nearly those of an interface's optional ones: nobody would call them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from inspect import getattr_static

_NEAR = 0.8
"""How alike two names are of which one is probably a misspelt other (``difflib``'s ratio)."""


def misspelt(interface: type, product: type) -> Iterator[str]:
    """Methods of ``product`` whose names are nearly those that it leaves to the interface, and settings if it has any.

    A guard with ``befor`` would let every request pass.
    """
    has_settings = any(not callable(getattr(interface, name, None)) for name in _public(interface))
    inherited = {
        name for name in _public(interface) if getattr_static(product, name, None) is vars(interface).get(name)
    }
    known = {name for base in product.__mro__ if _is_ours(base) for name in _public(base)}
    for base in product.__mro__:
        for name in () if base is object or _is_ours(base) else sorted(_public(base) - known):
            if not has_settings and not callable(getattr(product, name, None)):
                continue
            if near := get_close_matches(name, inherited, n=1, cutoff=_NEAR):
                yield f"'{name}' is nearly '{near[0]}', and nobody would call it: correct it, or name it '_{name}'"


def _public(of: type) -> set[str]:
    return {name for name in (*vars(of), *vars(of).get("__annotations__", ())) if name[0] != "_"}


def _is_ours(base: type) -> bool:
    return base.__module__.partition(".")[0] in ("enginehouse", "enginehouse_kit")
