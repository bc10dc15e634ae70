"""Usage stores: keep what callers have used, and what operators have done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from enginehouse.callers import AuditEntry, UsageRow

__all__ = ["UsageStore"]

_DAY_S = 86400


class UsageStore(ABC):
    """Chosen by ``usage.store``. The gateway calls all methods but ``prepare`` in one thread.

    It gathers for a second what it hands to ``add``. If a method raises, it logs a warning, and adds the same rows and
    entries again later.
    """

    def prepare(self, folder: Path) -> None:
        """Take the folder of the gateway's state, before any other call. It may not exist yet, so open files later."""

    @abstractmethod
    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        """Add all ``rows`` to the sums, and keep the ``entries``, or nothing of them if an exception is raised.

        A row has its ``hour``, ``key``, ``model`` and ``user``.
        """

    @abstractmethod
    def usage(self, since: float, until: float) -> Sequence[UsageRow]:
        """Return the sums of each hour, key, model and user whose hour begins in that time, in seconds of the epoch."""

    def sums(
        self, since: float, until: float, by: Sequence[str], key: str | None = None, most: int | None = None
    ) -> Sequence[UsageRow]:
        """Return the sums of that time by some of ``hour``, ``day``, ``key``, ``model`` and ``user``.

        The other fields of a row are ``None``. The ``hour`` of a row by ``day`` is the first one of the day. ``key``:
        only what this one used. ``most``: return no more rows. By default, what ``usage`` returns is summed up.
        """
        rows = self.usage(since, until)
        return summed_up((row for row in rows if key is None or row.key == key), by)[:most]

    @abstractmethod
    def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        """Return the last ``most`` entries since then, the newest first."""

    @abstractmethod
    def forget(self, before: float) -> None:
        """Drop what is older."""

    def close(self) -> None:
        """Close what is open."""


def summed_up(rows: Iterable[UsageRow], by: Sequence[str]) -> list[UsageRow]:
    """The sums of ``rows`` by some of ``hour``, ``day`` (in UTC), ``key``, ``model`` and ``user``."""
    whole = "hour" in by
    sums: dict[tuple[object, ...], UsageRow] = {}
    for row in rows:
        hour = row.hour if whole or row.hour is None else row.hour // _DAY_S * _DAY_S if "day" in by else None
        names = (
            hour,
            row.key if "key" in by else None,
            row.model if "model" in by else None,
            row.user if "user" in by else None,
        )
        known = sums.get(names)
        if known is None:
            known = sums[names] = UsageRow(*names)
        known.add(row)
    return list(sums.values())
