"""A share of the memory for engines' answers that has no limit."""

from __future__ import annotations


class FakeShare:
    """Counts the bytes that are held. A ``MemoryShare``; ``FakeShare`` itself makes them, as a ``NewShare`` does."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.size = 0

    def take(self, size: int) -> str:
        """Count ``size`` more bytes."""
        self.size += size
        return ""

    def give_back(self) -> None:
        """Count all bytes out."""
        self.size = 0
