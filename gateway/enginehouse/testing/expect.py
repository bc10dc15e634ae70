"""How a conformance check says that a rule is broken."""

from __future__ import annotations

from collections.abc import Sequence


def expect(holds: bool, otherwise: str) -> None:
    """Raise ``AssertionError`` with the text ``otherwise`` unless it holds."""
    if not holds:
        raise AssertionError(otherwise)


def expect_sequence(method: str, value: object) -> None:
    """Raise ``AssertionError`` unless what ``method`` returned is a list or a tuple, or like one."""
    expect(
        isinstance(value, Sequence) and not isinstance(value, str),
        f"{method} must return a sequence (a list or a tuple), got {value!r}",
    )
