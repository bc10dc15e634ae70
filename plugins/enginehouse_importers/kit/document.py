"""Reads configuration files of other programs as plain data."""

from __future__ import annotations

from typing import Any

import yaml

from enginehouse import ConfigError
from enginehouse_importers.kit.table import scalar_text


def read_yaml(text: str, file: str) -> dict[str, Any]:
    """The mapping in ``text``, with all keys as text. Raises ``ConfigError`` with the position in ``file``."""
    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, file=where, remedy="fix the syntax there") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    return table_of(data, file)


def table_of(data: Any, file: str) -> dict[str, Any]:
    """``data`` with all keys as text. Raises ``ConfigError`` if it is no mapping; nothing is an empty one."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        remedy = "name the configuration file of the program"
        raise ConfigError("is not a mapping of settings", file=file, remedy=remedy)
    table: dict[str, Any] = _with_text_keys(data)
    return table


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {scalar_text(name): _with_text_keys(item) for name, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
