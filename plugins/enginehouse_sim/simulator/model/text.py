"""The tokenizer.

A token is a visible piece of text: a space and up to five letters or digits, or any other single character. Its id is 1
followed by its UTF-8 bytes, read as a number, so that ids and text convert without a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

EOS = 1
"""The end-of-sequence token; it has no text."""

WORD_LENGTH = 5
"""The most letters or digits in a token."""

_PIECE = re.compile(rf" ?[A-Za-z0-9_]{{1,{WORD_LENGTH}}}|.", re.DOTALL)


def pieces(text: str) -> list[str]:
    """``text`` cut into tokens."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """The number of tokens in ``text``."""
    return len(_PIECE.findall(text))


def encode(text: str) -> list[int]:
    """The token ids of ``text``."""
    return [token_id(piece) for piece in _PIECE.findall(text)]


@lru_cache(maxsize=1 << 16)
def token_id(piece: str) -> int:
    """The id of one token."""
    return int.from_bytes(b"\1" + piece.encode(), "big")


@lru_cache(maxsize=1 << 16)
def bytes_of(token: int) -> bytes:
    """The UTF-8 bytes of a token. The bytes of a number that is no token id may be invalid UTF-8."""
    token = max(0, token)
    return token.to_bytes((token.bit_length() + 7) // 8, "big")[1:]


@lru_cache(maxsize=1 << 16)
def piece_of(token: int) -> str:
    """The text of a token, with replacement characters for invalid bytes."""
    return bytes_of(token).decode(errors="replace")


def text_of(ids: Iterable[int]) -> str:
    """The text of tokens, with replacement characters for invalid bytes."""
    return b"".join(map(bytes_of, ids)).decode(errors="replace")
