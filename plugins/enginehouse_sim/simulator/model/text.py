"""The tokenizer.

A token is a visible piece of text: a space and up to five letters or digits, or any other single character. Ids and
text convert without a table, and ids stay below 2^31: two more than the code point for a single character, and after
all of these the words, numbered in the order of their lengths, each without and with a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

EOS = 1
"""The end-of-sequence token; it has no text."""

WORD_LENGTH = 5
"""The most letters or digits in a token."""

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""The characters that tokens of several characters have."""

_FIRST_CHARACTER = 2
_FIRST_WORD = _FIRST_CHARACTER + 0x110000
_DIGITS = {letter: digit for digit, letter in enumerate(LETTERS, 1)}
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
    word = piece.removeprefix(" ")
    if not word or any(letter not in _DIGITS for letter in word):
        return _FIRST_CHARACTER + ord(piece)
    number = 0
    for letter in word:
        number = number * len(LETTERS) + _DIGITS[letter]
    return _FIRST_WORD + 2 * number + (len(word) < len(piece))


@lru_cache(maxsize=1 << 16)
def bytes_of(token: int) -> bytes:
    """The UTF-8 bytes of a token, and some bytes of any other number but ``EOS``."""
    if token == EOS:
        return b""
    if token < _FIRST_WORD:
        return chr(max(0, token - _FIRST_CHARACTER)).encode(errors="replace")
    number, has_space = divmod(token - _FIRST_WORD, 2)
    letters: list[str] = []
    while number:
        number, digit = divmod(number - 1, len(LETTERS))
        letters.append(LETTERS[digit])
    return (" " * has_space + "".join(reversed(letters))).encode()


@lru_cache(maxsize=1 << 16)
def piece_of(token: int) -> str:
    """The text of a token."""
    return bytes_of(token).decode()


def text_of(ids: Iterable[int]) -> str:
    """The text of tokens."""
    return b"".join(map(bytes_of, ids)).decode()
