"""Reads a mapping of another program's file key by key and notes every key that was not read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from enginehouse import ConfigError
from enginehouse.settings import dotted

T = TypeVar("T")
UNKNOWN = "left out: the importer does not know this setting"


class Note(msgspec.Struct, frozen=True):
    """A note about one ``key`` of the other program's file."""

    key: str
    note: str


def scalar_text(value: Any) -> str:
    """``value`` as other programs write it into text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "null" if value is None else str(value)


class Converted(NamedTuple):
    """The data of an ``enginehouse.toml``, and notes for its reader."""

    config: dict[str, Any]
    notes: list[Note]


class Table:
    """A mapping with typed access to its values.

    A value of another type is noted, and the default is used. Call ``leave_out`` last: it notes all keys that were not
    read. A value of ``None`` counts as missing.
    """

    def __init__(self, data: Mapping[str, Any], path: tuple[str | int, ...], notes: list[Note]) -> None:
        self._data = {name: value for name, value in data.items() if value is not None}
        self._path = path
        self._notes = notes
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def text(self, key: str, default: str = "") -> str:
        """A text. Other scalars are converted."""
        return scalar_text(value) if isinstance(value := self._scalar(key, default), bool | int | float) else str(value)

    def one_of(self, key: str, choices: Collection[str], default: str = "") -> str:
        """One of ``choices``, whatever its case. Raises ``ConfigError`` for any other value.

        For keys where a guess may send requests to servers that must not see them.
        """
        value = self.value(key, default)
        if isinstance(value, str) and value.lower() in choices:
            return value.lower()
        known = ", ".join(f'"{each}"' for each in choices)
        raise ConfigError(f"expected one of {known}", key=self.place(key), remedy="correct it, and import again")

    def whole(self, key: str, default: int, least: int = 0) -> int:
        """A whole number of ``least`` or more, also as text, because macros produce text."""
        value = self._scalar(key, default)
        try:
            number = int(scalar_text(value))
        except ValueError:
            number = least - 1
        return number if number >= least else self._wrong(key, f"a whole number of {least} or more", default)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false, also as text, because macros produce text."""
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
        """A mapping as plain data."""
        value = self.value(key, {})
        return value if isinstance(value, dict) else self._wrong(key, "a table", {})

    def table(self, key: str) -> Table:
        """The ``Table`` of a nested mapping; an empty one if there is none."""
        return Table(self.mapping(key), (*self._path, key), self._notes)

    def tables(self, key: str) -> dict[str, Table]:
        """The ``Table`` of every entry of a nested mapping. Entries of other types are noted."""
        outer = self.table(key)
        return {name: outer.table(name) for name in outer.names()}

    def inside(self, data: Mapping[str, Any], *keys: str | int) -> Table:
        """The ``Table`` of ``data``, which is at ``keys`` below this one, as an entry of a list is."""
        return Table(data, (*self._path, *keys), self._notes)

    def names(self) -> list[str]:
        """All keys."""
        return list(self._data)

    def beside(self, key: str, data: Mapping[str, Any]) -> dict[str, Table]:
        """A ``Table`` for every entry of ``data``, with notes as if ``data`` were at ``key``."""
        return Table({key: data}, self._path, self._notes).tables(key)

    def value(self, key: str, default: Any = None) -> Any:
        """A value of any type."""
        self._read.add(key)
        return self._data.get(key, default)

    def place(self, *keys: str | int) -> str:
        """The path ``keys`` below this table, as notes and errors name it."""
        return dotted((*self._path, *keys))

    def note(self, text: str, *keys: str | int) -> None:
        """Add a note about the path ``keys`` below this table."""
        self._notes.append(Note(self.place(*keys), text))

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Note every key that was not read, with its reason from ``reasons``, if there is one."""
        for key in self._data:
            if key not in self._read:
                self._read.add(key)
                self.note(reasons.get(key, UNKNOWN), key)

    def leave_out_one(self, key: str, reason: str) -> None:
        """Note ``key`` as left out, if it is there."""
        if key in self._data and key not in self._read:
            self._read.add(key)
            self.note(reason, key)

    def silence(self) -> None:
        """Note none of its keys: a note about the whole says why it is left out."""
        self._read.update(self._data)

    def _scalar(self, key: str, default: Any) -> Any:
        value = self.value(key, default)
        return self._wrong(key, "one value", default) if isinstance(value, dict | list) else value

    def _wrong(self, key: str, expected: str, default: T) -> T:
        self.note(f"left out: expected {expected}", key)
        return default
