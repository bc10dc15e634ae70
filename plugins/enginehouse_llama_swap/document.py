"""Reads a YAML file as plain data."""

from __future__ import annotations

import re
from typing import Any

import yaml

from enginehouse import ConfigError

_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")
_MARK = re.compile("\ue000([^\ue001]*)\ue001")
"""Replaces a variable while YAML is parsed. llama-swap expands variables first, so they may stand where YAML allows no
braces."""


def read_document(text: str, file: str) -> dict[str, Any]:
    """The mapping in ``text``, with variables written as ``${env:NAME}`` and with all keys as text.

    Raises ``ConfigError`` with the position in ``file``.
    """
    try:
        data = yaml.safe_load(_VARIABLE.sub("\ue000\\1\ue001", text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, file=where, remedy="fix the syntax there") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError("is not a mapping of settings", file=file, remedy="name the YAML file that llama-swap reads")
    table: dict[str, Any] = _plain(data)
    return table


def scalar_text(value: Any) -> str:
    """``value`` as llama-swap writes it into text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "null" if value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(scalar_text(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _MARK.sub(r"${env:\1}", value) if isinstance(value, str) else value
