"""Reads files of other programs in bounded time and memory, key by key, and notes every key that was not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from enginehouse import ConfigError
from enginehouse.settings import dotted

T = TypeVar("T")
UNKNOWN = "left out: the importer does not know this setting"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_NODES: Final = 200_000
"""The most values of a document, with everything that its aliases repeat."""
_DEEPEST: Final = 100


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


def reasons(keys: Mapping[str, str]) -> dict[str, str]:
    """A note for each key that is left out. ``keys``: the reasons, each with its keys, separated by spaces."""
    return {key: f"left out: {reason}" for reason, named in keys.items() for key in keys_in(named)}


def keys_in(text: str) -> frozenset[str]:
    """The keys in a ``text`` that spaces separate."""
    return frozenset(text.split())


class Converted(NamedTuple):
    """The data of an ``enginehouse.toml``, and notes for its reader."""

    config: dict[str, Any]
    notes: list[Note]


def converted(sections: Mapping[str, Any], notes: list[Note]) -> Converted:
    """The ``sections`` without empty ones, and without keys whose values are ``None`` or empty."""
    found = {name: without_empty(section) for name, section in sections.items()}
    return Converted({name: section for name, section in found.items() if section}, notes)


def without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    """``table`` without keys whose values are ``None``, or an empty text, list or table."""
    return {key: value for key, value in table.items() if value not in (None, "", [], {})}


def seconds(number: float) -> str:
    """A duration as our configuration has it."""
    return f"{number:g}s" if number >= 1 or not number else f"{number * 1000:g}ms"


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

    def count(self, key: str) -> int | None:
        """A whole number; ``None`` for 0, which means nothing in particular."""
        return self.whole(key, 0) or None

    def period(self, key: str) -> str | None:
        """A whole number of seconds, as a duration; ``None`` for 0."""
        number = self.count(key)
        return seconds(number) if number else None

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

    def each(self, key: str) -> Iterator[Table]:
        """The ``Table`` of every entry of a list. An entry of another type is noted."""
        for position, data in enumerate(self.items(key)):
            if isinstance(data, dict):
                yield Table(data, (*self._path, key, position), self._notes)
            else:
                self.note("left out: expected a table", key, position)

    def choice(self, key: str, known: Mapping[str, str], default: str, otherwise: str) -> str:
        """What ``known`` has for the text at ``key``; empty, with the note ``otherwise``, if it has nothing."""
        text = self.text(key, default)
        if text not in known:
            self.note(otherwise, key)
        return known.get(text, "")

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


def read_yaml(text: str, file: str) -> dict[str, Any]:
    """The mapping in ``text``, with all keys as text. Raises ``ConfigError`` with the position in ``file``."""
    try:
        _check_depth(text, file)
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
            if root is not None:
                _Sizes(file).of(root)
            data = loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, file=where, remedy="fix the syntax there") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    return table_of(data, file)


def _check_depth(text: str, file: str) -> None:
    """Refuse deep nesting before the parser's recursion meets it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"nested deeper than {_DEEPEST} levels", file=file)


class _Sizes:
    """Counts what a document becomes when each alias repeats its anchor. Raises ``ConfigError`` if that is too much.

    An alias is the node of its anchor again: nine lines of nine aliases are a billion values.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._sizes: dict[int, int] = {}

    def of(self, node: yaml.Node) -> int:
        key = id(node)
        if key not in self._sizes:
            self._sizes[key] = _MOST_NODES  # for an anchor that contains itself
            self._sizes[key] = 1 + sum(map(self.of, _parts(node)))
        if self._sizes[key] > _MOST_NODES:
            problem = f"its aliases stand for more than {_MOST_NODES} values"
            raise ConfigError(problem, file=f"{self._file}:{node.start_mark.line + 1}", remedy="write them out")
        return self._sizes[key]


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


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
