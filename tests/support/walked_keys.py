"""Walks all keys of a configuration of another program, and looks for what an importer makes of each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from enginehouse import ConfigError
from enginehouse.settings import dotted
from enginehouse_importers.kit.table import Converted

Path = tuple[str | int, ...]
ConvertData = Callable[[Any], Converted]


def vanished(data: Any, convert: ConvertData) -> list[str]:
    """The keys of ``data`` without any effect: without them, neither the configuration nor the notes differ.

    A key without which the import refuses has an effect. A key whose value is a default counts as vanished, so samples
    have other values.
    """
    whole = convert(data)
    return [dotted(path) for path in _leaves(data) if _same(convert, _without(data, path), whole, path)]


def _same(convert: ConvertData, less: Any, whole: Converted, path: Path) -> bool:
    try:
        without = convert(less)
    except ConfigError:
        return False
    if without.config != whole.config or without.notes != whole.notes:
        return False
    place = dotted(path)
    return not any(place.startswith(note.key) or note.key.startswith(place) for note in whole.notes)


def switched(data: Any) -> Iterator[tuple[str, Any]]:
    """``data`` with one of its switches in the other position, and the path of this one; for each switch."""
    for path in _leaves(data):
        value = data
        for key in path:
            value = value[key]
        if isinstance(value, bool):
            changed = copy.deepcopy(data)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = not value
            yield dotted(path), changed


def _leaves(data: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values, but not of those within a list of plain values."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list) and any(isinstance(each, Mapping) for each in data):
        for number, value in enumerate(data):
            yield from _leaves(value, (*path, number))
    else:
        yield path


def _without(data: Any, path: Path) -> Any:
    left = copy.deepcopy(data)
    place = left
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return left
