"""Assertions of the conformance checks."""

from __future__ import annotations

from collections.abc import Sequence


def expect(holds: bool, otherwise: str) -> None:
    """Raise ``AssertionError`` with the text ``otherwise`` unless ``holds`` is true."""
    if not holds:
        raise AssertionError(otherwise)


def expect_sequence(method: str, value: object) -> None:
    """Raise ``AssertionError`` unless ``value``, returned by ``method``, is a sequence other than a string."""
    if not isinstance(value, Sequence) or isinstance(value, str):  # writing the text takes longer than most checks
        raise AssertionError(f"{method} must return a sequence (a list or a tuple), got {value!r}")
