"""The tokenizer, and the sampler: text token by token, and vectors for texts.

A token is a visible piece of text: a space and up to five letters or digits, or any other single character. Ids and
text convert without a table, and ids stay below 2^31: two more than the code point for a single character, and after
all of these the words, numbered in the order of their lengths, each without and with a space.

A generated token depends only on the seed, the choice and the text before it. Any process that continues a text, or its
tokens, therefore generates the rest of the same answer.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from zlib import crc32

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

_COUNT = len(WORDS)
_AT_START = tuple((token_id(word), word.encode()) for word in WORDS)
_INSIDE = tuple((token_id(" " + word), b" " + word.encode()) for word in WORDS)
_MASK = 0xFFFFFFFF
_STRIDE = 37  # coprime to the number of words, so that its multiples visit all of them

# Multipliers of xxHash and MurmurHash3. Each kind of draw has its own, so that no draw predicts another.
_FOR_WORD = 0x9E3779B1
_FOR_END = 0x85EBCA6B
_FOR_DRAFT = 0xC2B2AE35
_FOR_LOGPROB = 0x27D4EB2F


class TextSampler:
    """The sampler's state after a text: a checksum of that text.

    ``mean_length``: each token is the last one with a chance of 1 in ``mean_length``. Answers have that length on
    average, and the sampler need not know how long its answer will be. ``None``: answers do not end.
    """

    __slots__ = ("_end", "_state", "_words")

    def __init__(self, seed: int, text: str, choice: int = 0, mean_length: int | None = None) -> None:
        self._state = crc32(text.encode(), crc32(b"%d/%d" % (seed, choice)))
        self._words = _words_after(text)
        self._end = 0 if mean_length is None else _MASK // mean_length

    def copy(self) -> TextSampler:
        twin = TextSampler.__new__(TextSampler)
        twin._state, twin._words, twin._end = self._state, self._words, self._end
        return twin

    def next(self, may_end: bool = True, without: frozenset[int] = frozenset()) -> int:
        """Generate the next token of free text, none of ``without``. ``may_end``: whether it may be ``EOS``."""
        state = self._state
        if self._end and may_end and state * _FOR_END & _MASK < self._end:
            return EOS
        at = (state * _FOR_WORD & _MASK) >> 16
        token, text = self._words[at % _COUNT]
        while token in without and len(without) < _COUNT:
            at += _STRIDE
            token, text = self._words[at % _COUNT]
        self._state = crc32(text, state)
        self._words = _INSIDE
        return token

    def pick(self, allowed: frozenset[int]) -> int:
        """Generate the next token, the only one of ``allowed``."""
        (token,) = allowed
        self.push(token)
        return token

    def push(self, token: int) -> None:
        text = bytes_of(token)
        if text:
            self._state = crc32(text, self._state)
            self._words = _words_after(text.decode())

    def draft(self, acceptance: float) -> int:
        """Guess the next token, correctly with a chance of ``acceptance``, and continue after the guess."""
        if self._draw(_FOR_DRAFT) < acceptance:
            return self.next()
        guess = self.alternatives(self.copy().next(may_end=False), 2)[1][0]
        self.push(guess)
        return guess

    def alternatives(self, token: int, count: int) -> list[tuple[int, float]]:
        """The ``count`` likeliest next tokens with log-probabilities, ``token`` first.

        From the third one on, each is half as likely as the one before.
        """
        found = [(token, math.log(self._likely()))]
        at, rest = self._state * _FOR_WORD & _MASK, 1 - self._likely()
        others = (self._words[((at >> 16) + step * _STRIDE) % _COUNT][0] for step in range(_COUNT))
        for other in islice((other for other in others if other != token), count - 1):
            found.append((other, math.log(rest / 2 ** len(found))))
        return found

    def _likely(self) -> float:
        return 0.5 + 0.45 * self._draw(_FOR_LOGPROB)

    def _draw(self, factor: int) -> float:
        return (self._state * factor & _MASK) / (_MASK + 1)


def _words_after(text: str) -> Sequence[tuple[int, bytes]]:
    # After a space, a word begins with a second space: otherwise both would merge when the text is tokenized again.
    return _AT_START if not text or (text[-1].isspace() and text[-1] != " ") else _INSIDE


def vector(seed: int, text: str, dimensions: int) -> list[float]:
    """A vector of length 1 that depends only on the seed and the text."""
    draw = random.Random(crc32(text.encode(), seed & 0xFFFFFFFF))
    values = [draw.uniform(-1, 1) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]
