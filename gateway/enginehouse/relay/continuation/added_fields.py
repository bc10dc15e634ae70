"""Removes from a stream the fields that the driver asked for so that it can be continued."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from enginehouse.relay.events.sse import read_events

Cut = Callable[[bytes], bytes]
"""Turns an engine's events into the client's."""

_IDS = b',"token_ids":['
_NAME = b'token_ids"'
_MARK = _NAME + b":"
_LEADS = (b',"', b',"prompt_')
_LIST = rb"(?:\[[0-9,\s]*\]|null)"
_ALL_IDS = re.compile(
    rb',\s*"(?:prompt_)?token_ids"\s*:\s*' + _LIST + rb'|"(?:prompt_)?token_ids"\s*:\s*' + _LIST + rb"\s*,?"
)
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def joined_cuts(first: Cut | None, then: Cut | None) -> Cut | None:
    """Both, one after the other."""
    if first is None or then is None:
        return first or then
    one, other = first, then
    return lambda piece: other(one(piece))


def cut_ids(piece: bytes) -> bytes:
    """``piece`` without ``token_ids`` and ``prompt_token_ids``.

    A quoted key cannot be part of a text, whose quotes are escaped. Nearly every piece is one event with one list.
    """
    at = piece.find(_IDS)
    if at >= 0:
        end = piece.find(b"]", at) + 1
        if end and piece.find(_MARK, end) < 0 and piece.rfind(_MARK, 0, at) < 0:
            return piece[:at] + piece[end:]
    if _NAME not in piece:
        return piece
    usual = _cut_usual(piece) if _MARK in piece else None
    return _ALL_IDS.sub(b"", piece) if usual is None else usual


def _cut_usual(piece: bytes) -> bytes | None:
    """``cut_ids`` for the usual spelling, whose lists are not looked at number by number; else ``None``.

    A prompt's list may have a hundred thousand bytes.
    """
    kept, start = [], 0
    at = piece.find(_MARK)
    while at >= 0:
        value = at + len(_MARK)
        begin = next((at - len(lead) for lead in _LEADS if piece.endswith(lead, start, at)), -1)
        if piece.startswith(b"[", value):
            end = piece.find(b"]", value) + 1
            nested = piece.find(b"[", value + 1, end) >= 0
        else:
            end, nested = value + 4, not piece.startswith(b"null", value)
        if begin < 0 or not end or nested:
            return None
        kept.append(piece[start:begin])
        start = end
        at = piece.find(_MARK, end)
    return b"".join(kept) + piece[start:]


def _cut_field(piece: bytes, name: bytes) -> bytes:
    """``piece`` without the fields ``name`` whose values are objects."""
    if b'"%s"' % name not in piece:
        return piece
    key = _object_key(name)
    found = key.search(piece)
    while found is not None:
        start, rest = found.start(), piece[_end_of_object(piece, found.end() - 1) :]
        if not found[0].startswith(b","):  # the first field: the comma after it goes too
            rest = rest.lstrip().removeprefix(b",")
        piece = piece[:start] + rest
        found = key.search(piece, start)
    return piece


@lru_cache(maxsize=64)
def _object_key(name: bytes) -> re.Pattern[bytes]:
    """Finds a field whose value is an object, however the engine spaces its JSON."""
    return re.compile(rb',?\s*"%s"\s*:\s*\{' % re.escape(name))


def _end_of_object(piece: bytes, start: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(piece, start):
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
        elif sign in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end()
    return len(piece)


def _cut_usage(piece: bytes) -> bytes:
    """``piece`` without the event that has nothing but the usage, and without ``usage`` in other events."""
    if b'"usage"' not in piece:
        return piece
    kept, start = [], 0
    for event in read_events(piece):
        if not _NO_CHOICES.search(piece, start, event.end):
            kept.append(_cut_field(piece[start : event.end], b"usage"))
        start = event.end
    return b"".join(kept)


_SPECIAL: Final[Mapping[str, Cut]] = {"token_ids": cut_ids, "usage": _cut_usage}


@lru_cache(maxsize=64)
def cutter(fields: Sequence[str]) -> Cut | None:
    """The function that removes ``fields``: ``token_ids``, ``usage``, or another object. ``None`` for no fields."""
    cut: Cut | None = None
    for name in fields:
        cut = joined_cuts(cut, _SPECIAL.get(name) or partial(_cut_field, name=name.encode()))
    return cut
