"""From the text of a YAML file to plain data."""

from __future__ import annotations

import re
from typing import Any

import yaml

from enginehouse.domain.errors import ConfigError

_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")
_MARK = re.compile("\ue000([^\ue001]*)\ue001")
"""Stands for a variable while YAML is read: llama-swap puts its value in before that, so it may stand where braces may
not."""


def read_document(text: str, file: str) -> dict[str, Any]:
    """The table that ``text`` is; variables are written ``${env:NAME}``, and every name is text.

    Raises ``ConfigError`` with the position in ``file``.
    """
    try:
        data = yaml.safe_load(_VARIABLE.sub("\ue000\\1\ue001", text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, file=where, remedy="mend the syntax there") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError("holds no table of settings", file=file, remedy="name the YAML file that llama-swap reads")
    table: dict[str, Any] = _plain(data)
    return table


def scalar_text(value: Any) -> str:
    """``value`` as YAML and llama-swap write it."""
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
