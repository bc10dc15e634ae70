"""Tokens: cutting text into them, and making it up.

A token is a piece of text that one can see: a space and up to five letters or digits, or any other single character.
Its id is its UTF-8 bytes read as a number behind a 1, so that ids and text turn into each other without a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from zlib import crc32

_VOCABULARY = """
    amber anvil ash axle bell boil bolt brass brick brush cab canal cart chain chute clank
    clay coach coal coil coke cone crate cord crank crew dawn depot dome door draft drum
    dusk ember fire flag flame flue forge frost gauge gear glass glow gorge guard hatch heat
    hill hiss horn hot inch iron joint keel lamp lever lift line link load lock loop
    main metal mile mill mine mist night north oak oil pace pass patch path pipe plate
    plug point pump quay rack rail rain ramp rest rib ridge ring rise river road rod
    roof rope route rust sand shed shop sleet spoke slate slope smoke snow spark speed spur
    stack star steam steel stone stop straw tank tin track train turn valve wagon water wheel
"""
WORDS = tuple(_VOCABULARY.split())
"""The vocabulary of made-up text."""

_PIECE = re.compile(r" ?[A-Za-z0-9_]{1,5}|.", re.DOTALL)
_GOLDEN = 0x9E3779B1  # spreads the checksum's bits before the low ones are used
_MASK = 0xFFFFFFFF


def pieces(text: str) -> list[str]:
    """``text``, cut into tokens."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """The number of tokens in ``text``."""
    return len(_PIECE.findall(text))


def token_id(piece: str) -> int:
    """The id of one token."""
    return int.from_bytes(b"\1" + piece.encode(), "big")


def text_of(ids: Iterable[int]) -> str:
    """The text that tokens stand for. Numbers that are no token's id come out as replacement characters."""
    return b"".join(max(0, i).to_bytes((max(0, i).bit_length() + 7) // 8, "big")[1:] for i in ids).decode(
        errors="replace"
    )


def continuation(seed: int, text: str, choice: int = 0) -> Iterator[str]:
    """What follows ``text``, token by token, without end.

    A token depends on the seed, the choice and the text before it only. So whoever asks for the continuation of
    ``text`` and the tokens so far gets the rest of the same answer, from any process.
    """
    state = crc32(text.encode(), crc32(b"%d/%d" % (seed, choice)))
    space = "" if not text or text[-1].isspace() else " "
    while True:
        word = space + WORDS[((state * _GOLDEN & _MASK) >> 16) % len(WORDS)]
        state = crc32(word.encode(), state)
        space = " "
        yield word
