"""Discoverers: backends that appear and vanish."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from enginehouse.domain.replica import Role


class FoundBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that a discoverer found."""

    url: str
    driver: str = "openai"
    role: Role = Role.NEUTRAL
    models: tuple[str, ...] = ()


class Discoverer(Protocol):
    """Watches some place for backends."""

    def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        """All backends found, by name, anew whenever they change."""
