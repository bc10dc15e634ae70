"""llama-swap's macros: ``${NAME}``, replaced as text, or as what they are where nothing else stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from enginehouse.config.foreign.document import scalar_text

_MACRO = re.compile(r"\$\{([A-Za-z0-9_-]+)\}")
RESERVED = frozenset({"PORT", "MODEL_ID", "PID"})
"""What llama-swap itself knows for each model."""


class Macros:
    """Values by name, in the order of their declaration; each may use those declared before it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def over(self, own: Mapping[str, Any]) -> Macros:
        """These and a model's ``own``, which take the place of those of the same name."""
        return Macros({**self._values, **own})

    def expand(self, value: Any) -> Any:
        """``value`` with its macros replaced, as deep as it goes; unknown ones stay."""
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
            text = text.replace(macro, scalar_text(value))
        return text


def unknown_macros(value: Any) -> Iterator[str]:
    """The names of macros that are left in ``value`` after everything was expanded."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from unknown_macros(name)
            yield from unknown_macros(item)
    elif isinstance(value, list):
        for item in value:
            yield from unknown_macros(item)
    elif isinstance(value, str):
        yield from (name for name in _MACRO.findall(value) if name not in RESERVED)
