"""How many requests wait for each model, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


class OtherCounts(Protocol):
    """The requests that wait in other processes."""

    def waiting_for(self, model: str) -> int:
        """How many of them wait for ``model``."""

    def __bool__(self) -> bool:
        """Whether any waits."""


class WaitingCounts(Mapping[str, int]):
    """Adds ``others`` to the counts of this process, ``own``.

    A model that only others' requests wait for has its count, but is not listed: their names are not known here.
    """

    def __init__(self, own: Mapping[str, int]) -> None:
        self._own = own
        self.others: OtherCounts | None = None

    def __getitem__(self, model: str) -> int:
        count = self._own.get(model, 0) + (self.others.waiting_for(model) if self.others else 0)
        if not count:
            raise KeyError(model)
        return count

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __bool__(self) -> bool:
        return bool(self._own) or bool(self.others)
