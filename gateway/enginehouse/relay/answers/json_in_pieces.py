"""JSON that is too large to be held: whether it is whole."""

from __future__ import annotations

import re
from typing import Final

_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)


class JsonInPieces:
    """Follows the brackets of JSON that is too large to be held.

    ``is_whole``: all are closed.
    """

    __slots__ = ("_depth", "_in_text", "_rest")

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._rest = b""

    @property
    def is_whole(self) -> bool:
        return not (self._depth or self._in_text)

    def take(self, piece: bytes) -> None:
        """Read the next piece."""
        piece = _ESCAPED.sub(b"", self._rest + piece)
        self._rest = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.split(b'"')
        for part in parts[self._in_text :: 2]:
            self._depth += part.count(b"{") + part.count(b"[") - part.count(b"}") - part.count(b"]")
        self._in_text ^= len(parts) % 2 == 0
