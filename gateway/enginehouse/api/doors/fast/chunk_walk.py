"""Finds the end of a body in chunks."""

from __future__ import annotations


class ChunkWalk:
    """Follows a body that the parser accepts from chunk to chunk (RFC 9112, 7.1), in the pieces in which it comes."""

    __slots__ = ("_in_trailers", "_line", "_skip")

    def __init__(self) -> None:
        self._skip = 0
        self._line = b""
        self._in_trailers = False

    def end(self, data: bytes, at: int) -> int:
        """The end in ``data`` of the body that continues at ``at``; the length of ``data`` if it does not end there."""
        shift, behind = at - len(self._line), len(data)
        data = self._line + data[at:]
        at, self._line = self._skip, b""
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            at = end + 2
            if self._in_trailers and not line:
                return at + shift
            if not self._in_trailers:
                size = int(line.partition(b";")[0], 16)
                self._in_trailers = not size
                at += size + 2 if size else 0
        self._skip = max(at - len(data), 0)
        self._line = data[at:]
        return behind
