"""Texts about objects and code of plugins. Their own ``__str__`` and ``__repr__`` may fail; these never do."""

from __future__ import annotations

import inspect
from traceback import walk_tb
from typing import Any


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


def raised_at(error: BaseException, module: str) -> str:
    """Where code of the package of ``module`` raised ``error``, or called what did, as `` (FILE:LINE)``; else empty."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    package = module.partition(".")[0]
    found = ""
    for frame, line in walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            found = f" ({frame.f_code.co_filename}:{line})"
    return found


def defined_at(code: Any) -> str:
    """Where a class or a function stands, as `` (FILE:LINE)``; empty if its source is not there."""
    try:
        return f" ({inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]})"
    except (OSError, TypeError):
        return ""
