"""Asks for one token of a prompt, and removes what drivers have added to requests from the streams that answer them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from enginehouse.continuers import cut_usage

Cut = Callable[[bytes], bytes]
"""Turns an engine's events into the client's."""

_IDS = b',"token_ids":['
_NAME = b'token_ids"'
_LEFT_OUT: Final = frozenset({"stream_options", "min_tokens", "max_completion_tokens", "n_predict"})
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_COLON = re.compile(rb"\s*:\s*")
_COMMA = re.compile(rb"\s*,")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def one_token(body: bytes) -> bytes:
    """Return ``body`` as a request for one token, so that its engine reads the prompt."""
    fields: dict[str, object] = {name: value for name, value in _fields(body).items() if name not in _LEFT_OUT}
    return msgspec.json.encode({**fields, "max_tokens": 1, "stream": False})


@lru_cache(maxsize=64)
def cutter(fields: Sequence[str]) -> Cut | None:
    """The function that removes ``fields``: ``token_ids``, ``usage``, or another object. ``None`` for no fields."""
    cuts = [
        _SPECIAL.get(name) or partial(_cut_field, key=f'"{name}"'.encode(), end_of=_end_of_object) for name in fields
    ]

    def cut(piece: bytes) -> bytes:
        for each in cuts:
            piece = each(piece)
        return piece

    return cut if len(cuts) > 1 else next(iter(cuts), None)


def _cut_ids(piece: bytes) -> bytes:
    """``piece`` without ``token_ids`` and ``prompt_token_ids``. Nearly every piece is one event with one list."""
    at = piece.find(_IDS)
    if at >= 0:
        end = piece.find(b"]", at) + 1
        if end and piece.find(_NAME, end) < 0 and piece.rfind(_NAME, 0, at) < 0:
            return piece[:at] + piece[end:]
    if _NAME not in piece:
        return piece
    return _cut_field(_cut_field(piece, b'"token_ids"', _end_of_list), b'"prompt_token_ids"', _end_of_list)


def _cut_field(piece: bytes, key: bytes, end_of: Callable[[bytes, int], int]) -> bytes:
    """``piece`` without the fields ``key``, as far as ``end_of`` finds the ends of their values.

    A quoted key cannot be part of a text, whose quotes are escaped. Only the places of keys are looked at: a prompt's
    list may have a hundred thousand bytes.
    """
    kept, start, at = [], 0, piece.find(key)
    while at >= 0:
        colon = _COLON.match(piece, at + len(key))
        end = end_of(piece, colon.end()) if colon is not None else 0
        if end:
            before = piece[start:at]
            if before.rstrip().endswith(b","):
                before = before.rstrip()[:-1]
            elif (comma := _COMMA.match(piece, end)) is not None:  # the first field: the comma after it goes too
                end = comma.end()
            kept.append(before)
            start = end
        at = piece.find(key, max(end, at + 1))
    return b"".join(kept) + piece[start:]


def _end_of_list(piece: bytes, start: int) -> int:
    """The end of a list of numbers, or of ``null``; 0 for any other value."""
    if piece.startswith(b"null", start):
        return start + 4
    end = piece.find(b"]", start) + 1 if piece.startswith(b"[", start) else 0
    return 0 if piece.find(b"[", start + 1, end) >= 0 else end


def _end_of_object(piece: bytes, start: int) -> int:
    """The end of an object; 0 for any other value."""
    depth = 0
    for token in _TOKEN.finditer(piece, start) if piece.startswith(b"{", start) else ():
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
        elif sign in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end()
    return 0


_SPECIAL: Final[dict[str, Cut]] = {"token_ids": _cut_ids, "usage": cut_usage}
