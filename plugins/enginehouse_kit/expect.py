"""Assertions of the conformance checks."""

from __future__ import annotations

from collections.abc import Sequence


def expect(holds: bool, otherwise: str) -> None:
    """Raise ``AssertionError`` with the text ``otherwise`` unless ``holds`` is true."""
    if not holds:
        raise AssertionError(otherwise)


def expect_sequence(method: str, value: object) -> None:
    """Raise ``AssertionError`` unless ``value``, returned by ``method``, is a sequence other than a string."""
    expect(
        isinstance(value, Sequence) and not isinstance(value, str),
        f"{method} must return a sequence (a list or a tuple), got {value!r}",
    )
