"""Makes texts of objects of plugins. Their own ``__str__`` and ``__repr__`` may fail; these functions never do."""

from __future__ import annotations


def describe(error: BaseException) -> str:
    """An exception in one line: its type and its message."""
    try:
        text = str(error)
    except BaseException:
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def shown(value: object) -> str:
    """The ``repr`` of ``value``, else its type."""
    try:
        return repr(value)
    except BaseException:
        return f"an object of type {type(value).__name__}"
