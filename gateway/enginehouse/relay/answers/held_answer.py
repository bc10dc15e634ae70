"""An answer that is delivered when it is whole."""

from __future__ import annotations

from enginehouse.relay.engine_memory import EngineMemory, EngineShare


class HeldAnswer:
    """Holds the pieces of an answer, at most ``most`` bytes, as far as ``memory`` has room."""

    __slots__ = ("_body", "_most", "_share")

    def __init__(self, memory: EngineMemory, most: int) -> None:
        self._most = most
        self._body = bytearray()  # a list of small pieces would take many times their bytes
        self._share = EngineShare(memory, "answer", most)

    def add(self, piece: bytes) -> bool:
        """Add a piece; whether the answer may be held any longer."""
        self._body += piece
        return len(self._body) <= self._most and not self._share.take(len(piece))

    def take(self) -> bytes:
        """All that was held. Nothing is, afterwards."""
        body = bytes(self._body)
        self.drop()
        return body

    def drop(self) -> None:
        """Hold nothing any more."""
        self._body = bytearray()
        self._share.give_back()
