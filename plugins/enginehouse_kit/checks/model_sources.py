"""The conformance check of model sources."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse import ModelSource
from enginehouse_kit.expect import expect

_OTHERS = ("", " ", "/", "..", "../../etc/passwd", "no such place:// ?", "a/b/c/d/e", "\x00")
"""No names of models."""


def check_model_source(factory: Callable[[], ModelSource]) -> None:
    """Check that ``takes`` tells a source's names from others, at each call the same. Downloads nothing."""
    it = factory()
    for name in _OTHERS:
        taken = it.takes(name)
        expect(isinstance(taken, bool), f"takes must return a bool, got {taken!r} for {name!r}")
        expect(not taken, f"takes must refuse {name!r}: it is not the name of a model")
        expect(it.takes(name) is taken, f"takes must say the same at each call, for {name!r}")
