"""Reads llama-swap's YAML, in which variables may stand where YAML allows no braces."""

from __future__ import annotations

import re
from typing import Any

from enginehouse_importers.kit.document import read_yaml

_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")
_MARK = re.compile("\ue000([^\ue001]*)\ue001")
"""Replaces a variable while YAML is parsed, because llama-swap expands variables before that."""


def read_document(text: str, file: str) -> dict[str, Any]:
    """The mapping in ``text``, with variables written as ``${env:NAME}`` and with all keys as text.

    Raises ``ConfigError`` with the position in ``file``.
    """
    table: dict[str, Any] = _written_out(read_yaml(_VARIABLE.sub("\ue000\\1\ue001", text), file))
    return table


def _written_out(value: Any) -> Any:
    if isinstance(value, dict):
        return {_written_out(name): _written_out(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_written_out(item) for item in value]
    return _MARK.sub(r"${env:\1}", value) if isinstance(value, str) else value
