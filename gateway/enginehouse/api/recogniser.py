"""Those who recognise callers besides the keys of the configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse.api.callers import KeyHolder


class Recogniser(ABC):
    """Recognises callers besides those of the configuration's keys."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether there may be any. If nobody is recognised, and no keys are set, everyone may do everything."""

    @abstractmethod
    def find(self, shown: bytes) -> KeyHolder | None:
        """The caller who shows this; ``None`` for anything unknown. Raises ``Unauthorized`` for what is not valid."""

    def named(self, name: str) -> KeyHolder | None:
        """The caller of that name."""
        return None
