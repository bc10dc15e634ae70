"""Usage stores: keep what callers have used, and what operators have done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from enginehouse.domain.usage import AuditEntry, UsageRow


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

    @abstractmethod
    def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        """Return the last ``most`` entries since then, the newest first."""

    @abstractmethod
    def forget(self, before: float) -> None:
        """Drop what is older."""

    def close(self) -> None:
        """Close what is open."""
