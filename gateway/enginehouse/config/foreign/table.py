"""A table of a foreign file, read key by key, so that nothing in it goes unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from enginehouse.config.foreign.document import scalar_text
from enginehouse.config.shape import Path, dotted

T = TypeVar("T")
UNKNOWN = "left out: not a setting of llama-swap that is known here"


class Note(msgspec.Struct, frozen=True):
    """What somebody has to know of one ``key`` of the foreign file."""

    key: str
    note: str


class Table:
    """Gives values out by key, each as the type asked for; a value of another type is noted and left out.

    ``leave_out`` comes last and notes what was not asked for. ``None`` is no value.
    """

    def __init__(self, data: Mapping[str, Any], path: Path, notes: list[Note]) -> None:
        self._data = {name: value for name, value in data.items() if value is not None}
        self._path = path
        self._notes = notes
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def text(self, key: str, default: str = "") -> str:
        """Text; any other scalar as text."""
        return scalar_text(value) if isinstance(value := self._scalar(key, default), bool | int | float) else str(value)

    def whole(self, key: str, default: int, least: int = 0) -> int:
        """A whole number of ``least`` or more, also when a macro made text of it."""
        value = self._scalar(key, default)
        try:
            number = int(scalar_text(value))
        except ValueError:
            number = least - 1
        return number if number >= least else self._wrong(key, f"a whole number of {least} or more", default)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false, also when a macro made text of it."""
        text = scalar_text(self._scalar(key, default))
        return text == "true" if text in ("true", "false") else self._wrong(key, "true or false", default)

    def items(self, key: str) -> list[Any]:
        """A list."""
        value = self.value(key, [])
        return value if isinstance(value, list) else self._wrong(key, "a list", [])

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        items = self.items(key)
        if any(isinstance(item, dict | list) or item is None for item in items):
            return self._wrong(key, "a list of texts", [])
        return [scalar_text(item) for item in items]

    def mapping(self, key: str) -> dict[str, Any]:
        """A table as plain data."""
        value = self.value(key, {})
        return value if isinstance(value, dict) else self._wrong(key, "a table", {})

    def table(self, key: str) -> Table:
        """A table to be read in its turn; an empty one if there is none."""
        return Table(self.mapping(key), (*self._path, key), self._notes)

    def tables(self, key: str) -> dict[str, Table]:
        """A table of tables; what is no table in it is noted."""
        outer = self.table(key)
        return {name: outer.table(name) for name in outer.names()}

    def names(self) -> list[str]:
        """Every key that is there."""
        return list(self._data)

    def beside(self, key: str, data: Mapping[str, Any]) -> dict[str, Table]:
        """Tables to be read as if they were at ``key``."""
        return Table({key: data}, self._path, self._notes).tables(key)

    def value(self, key: str, default: Any = None) -> Any:
        """Whatever is there."""
        self._asked.add(key)
        return self._data.get(key, default)

    def note(self, text: str, *keys: str | int) -> None:
        """Note ``text`` of what is at ``keys`` below this table."""
        self._notes.append(Note(dotted((*self._path, *keys)), text))

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Note every key that was not asked for, with its reason if there is one."""
        for key in self._data:
            if key not in self._asked:
                self._asked.add(key)
                self.note(reasons.get(key, UNKNOWN), key)

    def _scalar(self, key: str, default: Any) -> Any:
        value = self.value(key, default)
        return self._wrong(key, "one value", default) if isinstance(value, dict | list) else value

    def _wrong(self, key: str, expected: str, default: T) -> T:
        self.note(f"left out: expected {expected}", key)
        return default
