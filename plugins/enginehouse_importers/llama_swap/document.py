"""Reads llama-swap's YAML, with its variables and macros."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from enginehouse import ConfigError
from enginehouse_importers.kit.table import read_yaml, scalar_text

_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")
_MARK = re.compile("\ue000([^\ue001]*)\ue001")
"""Replaces a variable while YAML is parsed, because llama-swap expands variables before that."""
_MOST_TEXT: Final = 4 << 20
"""The most characters that the macros of a file may become: macros of macros double with each line."""
_MACRO = re.compile(r"\$\{([A-Za-z0-9_-]+)\}")
RESERVED = frozenset({"PORT", "MODEL_ID", "PID"})
"""Macros that llama-swap defines for each model."""


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


class Budget:
    """The characters that macros may still become."""

    def __init__(self) -> None:
        self._left = _MOST_TEXT

    def spend(self, characters: int) -> None:
        """Raise ``ConfigError`` if there are not so many left."""
        self._left -= characters
        if self._left < 0:
            problem = f"its macros become more than {_MOST_TEXT} characters"
            raise ConfigError(problem, key="macros", remedy="use fewer macros within macros")


class Macros:
    """Macros in the order of their declaration. Each may use those declared before it."""

    def __init__(self, values: Mapping[str, Any], budget: Budget | None = None) -> None:
        self._values = dict(values)
        self._budget = budget or Budget()

    def over(self, own: Mapping[str, Any]) -> Macros:
        """These macros and ``own`` ones of a model, which replace those of the same name."""
        return Macros({**self._values, **own}, self._budget)

    def expand(self, value: Any) -> Any:
        """``value`` with all macros expanded, at any depth. Unknown macros stay."""
        if isinstance(value, dict):
            return {self.expand(name): self.expand(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item) for item in value]
        return self._expand_text(value) if isinstance(value, str) else value

    def _expand_text(self, text: str) -> Any:
        for name, value in reversed(self._values.items()):
            macro = f"${{{name}}}"
            if text == macro and not isinstance(value, str):
                return value
            if macro in text:
                replacement = scalar_text(value)
                self._budget.spend(text.count(macro) * len(replacement))
                text = text.replace(macro, replacement)
        return text


def unknown_macros(value: Any) -> Iterator[str]:
    """The names of the macros that remain in an expanded ``value``, except reserved ones."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from unknown_macros(name)
            yield from unknown_macros(item)
    elif isinstance(value, list):
        for item in value:
            yield from unknown_macros(item)
    elif isinstance(value, str):
        yield from (name for name in _MACRO.findall(value) if name not in RESERVED)
