"""The framing of small chunks (RFC 9112, 7.1). Events of a stream are small."""

from __future__ import annotations

from typing import Final

_SMALL: Final = 1024
_LINES: Final = tuple(b"%x\r\n" % size for size in range(_SMALL))
_LINE_OF_WHOLE: Final = {len(line) + size + 2: line for size, line in enumerate(_LINES) if size}
"""The first line of a chunk, by the length of the whole chunk."""
_SIZES: Final = {line[:-2]: size for size, line in enumerate(_LINES) if size}
_LONGEST_SIZE: Final = 3


def framed(content: bytes) -> bytes:
    """``content``, which is not empty, as one chunk."""
    size = len(content)
    line = _LINES[size] if size < _SMALL else b"%x\r\n" % size
    return line + content + b"\r\n"


def content_of(data: bytes) -> bytes:
    """The content of ``data`` if that is exactly one small chunk in the usual spelling; empty for all other data.

    Leave such data to the parser: it may be several chunks, a large one, the last one, or one with extensions.
    """
    line = _LINE_OF_WHOLE.get(len(data))
    if line is None or data[: len(line)] != line or data[-2] != 13 or data[-1] != 10:
        return b""
    return data[len(line) : -2]


def whole_chunks(data: bytes) -> tuple[bytes, int]:
    """The content of the small chunks in the usual spelling with which ``data`` begins, and where they end in it.

    Leave what follows to the parser.
    """
    pieces, at = [], 0
    while (line := data.find(b"\r\n", at, at + _LONGEST_SIZE + 2)) > 0:
        size = _SIZES.get(data[at:line], 0)
        end = line + 2 + size
        if not size or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[line + 2 : end])
        at = end + 2
    return b"".join(pieces), at
