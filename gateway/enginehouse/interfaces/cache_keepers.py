"""Cache keepers: what keeps the prefix caches of launched engines while these do not run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from enginehouse.interfaces.drivers import EngineClient, KeepsCache


class LaunchedBackend(NamedTuple):
    """A backend whose engines the gateway launches.

    ``folder``: where they write their caches. It is removed when no model of the configuration has the backend.
    """

    name: str
    model: str
    folder: Path


class CacheKeeper(ABC):
    """Keeps the prefix cache of one backend's engines over their stops.

    It is used until the last engine has ended, so also after its service has stopped. An exception is logged, and the
    engine starts or stops all the same.
    """

    estimated: int = 0
    """The tokens that the next engine gets back, as routing estimates the tokens of prompts."""

    @abstractmethod
    async def prepare(self, launch: str, command: Sequence[str], files: Sequence[str]) -> None:
        """Note which engine is launched next: a fingerprint of its ``launch``, its command and its model's files.

        It may be launched by an earlier gateway, whose note is then the last.
        """

    @abstractmethod
    async def restore(self, driver: KeepsCache, engine: EngineClient) -> None:
        """Give an engine that has just become ready the cache that was kept for it."""

    @abstractmethod
    async def save(self, driver: KeepsCache, engine: EngineClient, within: float, most: int) -> None:
        """Keep up to ``most`` bytes of the cache of an engine that stops after this, within so many seconds."""
