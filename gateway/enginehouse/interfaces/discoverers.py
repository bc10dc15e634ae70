"""Discoverers: find backends that appear and disappear at run time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping

import msgspec

from enginehouse.domain.replica import Role


class FoundBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend, as a discoverer reports it. The fields are those of ``[backends.NAME]``."""

    url: str
    driver: str = "openai"
    role: Role = Role.NEUTRAL
    models: tuple[str, ...] = ()


class Discoverer(ABC):
    """Watches a source of backends, such as a registry or an orchestrator."""

    @abstractmethod
    def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        """Yield all backends by name, once at first and again after every change."""
