"""Tokens: cutting text into them, and putting it together again.

A token is a piece of text that one can see: a space and up to five letters or digits, or any other single character.
Its id is its UTF-8 bytes read as a number behind a 1, so that ids and text turn into each other without a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

EOS = 1
"""The token with which an answer ends by itself. There is no text in it."""

WORD_LENGTH = 5
"""The most letters and digits of one token."""

_PIECE = re.compile(rf" ?[A-Za-z0-9_]{{1,{WORD_LENGTH}}}|.", re.DOTALL)


def pieces(text: str) -> list[str]:
    """``text``, cut into tokens."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """The number of tokens in ``text``."""
    return len(_PIECE.findall(text))


def encode(text: str) -> list[int]:
    """The ids of the tokens in ``text``."""
    return [token_id(piece) for piece in _PIECE.findall(text)]


@lru_cache(maxsize=1 << 16)
def token_id(piece: str) -> int:
    """The id of one token."""
    return int.from_bytes(b"\1" + piece.encode(), "big")


@lru_cache(maxsize=1 << 16)
def bytes_of(token: int) -> bytes:
    """The UTF-8 text of one token; of a number that is no token's id, bytes that may be no text at all."""
    token = max(0, token)
    return token.to_bytes((token.bit_length() + 7) // 8, "big")[1:]


@lru_cache(maxsize=1 << 16)
def piece_of(token: int) -> str:
    """The text of one token; replacement characters for a number that is no token's id."""
    return bytes_of(token).decode(errors="replace")


def text_of(ids: Iterable[int]) -> str:
    """The text that tokens stand for. Numbers that are no token's id come out as replacement characters."""
    return b"".join(map(bytes_of, ids)).decode(errors="replace")
