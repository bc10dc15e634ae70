"""The memory that engines' answers make the gateway hold."""

from __future__ import annotations

from collections import Counter
from typing import Final

FULL: Final = "the gateway holds as much of engines' answers as it may (server.max_engine_memory)"


class EngineMemory:
    """Counts the bytes that are held of engines' answers, besides what waits for clients to read it.

    ``most``: the most bytes that may be held; 0 means no limit. ``dropped``: how often something was dropped because
    it was too large, or because there was no room: a ``question``, an ``answer`` that was held back, a ``gathered``
    answer or a ``continuation``.
    """

    __slots__ = ("dropped", "held", "most")

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.held = 0
        self.dropped: Counter[str] = Counter()


class EngineShare:
    """The share of one thing of a ``kind`` in the memory. ``most``: the most bytes that it may take."""

    __slots__ = ("_kind", "_memory", "_most", "size")

    def __init__(self, memory: EngineMemory, kind: str, most: int) -> None:
        self._memory = memory
        self._kind = kind
        self._most = most
        self.size = 0

    def take(self, size: int) -> str:
        """Count ``size`` more bytes. If they are too many, count the thing as dropped, and return the reason."""
        memory = self._memory
        if self.size + size > self._most:
            why = f"it takes more than {self._most} bytes"
        elif memory.most and memory.held + size > memory.most:
            why = FULL
        else:
            memory.held += size
            self.size += size
            return ""
        memory.dropped[self._kind] += 1
        self.give_back()
        return why

    def give_back(self) -> None:
        """Count all bytes out, because they are no longer held."""
        self._memory.held -= self.size
        self.size = 0


class HeldAnswer:
    """Holds the pieces of an answer: its ``body``, which has at most ``most`` bytes, as far as ``memory`` has room.

    ``kind``: as for ``EngineShare``.
    """

    __slots__ = ("_share", "body")

    def __init__(self, memory: EngineMemory, kind: str, most: int) -> None:
        self.body = bytearray()  # a list of small pieces would take many times their bytes
        self._share = EngineShare(memory, kind, most)

    def add(self, piece: bytes) -> str:
        """Hold one more piece, or return the reason why no more can be held."""
        if not (why := self._share.take(len(piece))):
            self.body += piece
        return why

    def take(self) -> bytes:
        """All that was held. Nothing is, afterwards."""
        body = bytes(self.body)
        self.drop()
        return body

    def drop(self) -> None:
        """Hold nothing any more."""
        self.body = bytearray()
        self._share.give_back()
