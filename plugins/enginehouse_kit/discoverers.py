"""Discoverers: find backends that appear and disappear at run time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping

from enginehouse.backends import FoundBackend

__all__ = ["Discoverer"]


class Discoverer(ABC):
    """Watches a source of backends, such as a registry or an orchestrator."""

    def serves_at(self, host: str, port: int) -> None:
        """Take the address at which this gateway listens, for a source that lists it. Called before ``watch``."""

    @abstractmethod
    def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        """Yield all backends by name, once at first and again after every change. An equal list confirms the last one.

        An exception is the source's failure: the gateway keeps the last backends, says why and calls ``watch`` again.
        """
