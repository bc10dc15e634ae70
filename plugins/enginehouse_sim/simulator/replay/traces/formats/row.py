"""The interface of a trace format."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

Row = Mapping[str, Any]
LONGEST = 10_000_000
"""The most tokens of a prompt or an answer: no engine takes longer ones, so the field means something else."""


class Format(ABC):
    """Reads rows with the fields ``needs``. ``wants`` names all fields, and ``units`` their units, in error messages.

    ``block``: the tokens for which each hash id stands; 0 without hash ids.
    """

    name: ClassVar[str]
    wants: ClassVar[str]
    units: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    block: ClassVar[int] = 0

    def fits(self, row: Row) -> bool:
        """Whether the row has the fields of this format."""
        return self.needs <= row.keys()

    def doubt(self, rows: Sequence[Row]) -> str:
        """Why rows with these fields may have other units; empty if there is no reason."""
        for length, ids in _blocks(rows) if self.block else ():
            if abs(-(-length // self.block) - ids) > 1:
                return f"{ids} hash_ids for {length} tokens are about {length / ids:.0f} tokens each"
        return ""

    @abstractmethod
    def request(self, row: Row) -> TraceRequest:
        """Convert a row. Raises ``ValueError``, whose message names the field."""


def text(row: Row, name: str) -> str:
    """The field of that name. Raises ``ValueError``."""
    return _converted(row, name, str, "a text")


def number(row: Row, name: str) -> float:
    """The field of that name, as a finite number. Raises ``ValueError``."""
    found = _converted(row, name, float, "a number")
    if not math.isfinite(found):
        raise ValueError(f"{name} is {row[name]!r}, not a number")
    return found


def length(row: Row, name: str) -> int:
    """The field of that name, as a number of tokens. Raises ``ValueError``."""
    found = _converted(row, name, int, "a whole number")
    if not 0 <= found <= LONGEST:
        raise ValueError(f"{name} is {found}, which is {'below 0' if found < 0 else f'above {LONGEST:,}'}")
    return found


def ids(row: Row, name: str) -> tuple[int, ...]:
    """The ids in the field of that name, in CSV with spaces between; none without it. Raises ``ValueError``."""
    value = row.get(name) or ()
    try:
        return tuple(map(int, value.split() if isinstance(value, str) else value))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}, not whole numbers") from None


_Value = TypeVar("_Value", int, float, str)


def _converted(row: Row, name: str, to: Callable[[Any], _Value], wanted: str) -> _Value:
    if row.get(name) is None:
        raise ValueError(f"{name} is missing")
    try:
        return to(row[name])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {row[name]!r}, not {wanted}") from None


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The length and the number of hash ids of each row that has both."""
    for row in rows:
        length, ids = row.get("input_length"), row.get("hash_ids")
        if isinstance(length, int) and isinstance(ids, list) and ids:
            yield length, len(ids)
