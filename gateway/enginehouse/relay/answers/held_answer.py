"""An answer that is delivered when it is whole."""

from __future__ import annotations

from enginehouse.relay.engine_memory import EngineMemory, EngineShare


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
