"""Changes of answers on their way to the client: of the model's name, and of the usage that only the gateway wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.relay.events.sse import read_events
from enginehouse.routing.body.rewrite import replace_model

Cut = Callable[[bytes], bytes]
"""Turns an engine's events into the client's."""

_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE: Final = b'"usage"'
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MODEL: Final = re.compile(rb'("model"[ \t\r\n]*:[ \t\r\n]*)"[^"\\]*(?:\\.[^"\\]*)*"')
_HELD: Final = 1024
"""Bytes: the most that the key and its value take in an answer that passes in pieces."""


def joined_cuts(first: Cut | None, then: Cut | None) -> Cut | None:
    """Both, one after the other."""
    if first is None or then is None:
        return first or then
    one, other = first, then  # not ``None``, as mypy knows of new names only
    return lambda piece: other(one(piece))


def cut_usage(piece: bytes) -> bytes:
    """``piece`` without the event that has nothing but the usage, and without ``usage`` in other events."""
    if _USAGE not in piece:
        return piece
    kept, start = [], 0
    for event in read_events(piece):
        if not _NO_CHOICES.search(piece, start, event.end):
            kept.append(_without_usage(piece[start : event.end], event.data or b""))
        start = event.end
    return b"".join(kept)


def _without_usage(event: bytes, data: bytes) -> bytes:
    """``event``, which has ``data``, but for its usage."""
    try:
        fields = _fields(data) if _USAGE in data else {}
    except (ValueError, RecursionError):
        return event
    if not bytes(fields.pop("usage", b"")).startswith(b"{"):
        return event
    rest = msgspec.json.encode(fields)
    return event.replace(data, rest) if data in event else b"data: %s\n\n" % rest


def renaming(name: str) -> Cut:
    """Returns what makes ``name`` the value of each ``model`` in whole events.

    A quoted key cannot be part of a text, whose quotes are escaped.
    """
    value = msgspec.json.encode(name)

    def rename(piece: bytes) -> bytes:
        return _MODEL.sub(lambda found: found[1] + value, piece)

    return rename


class RenamedPieces:
    """Names the model in the pieces of an answer that is not a stream. ``ends``: the last piece comes next."""

    def __init__(self, name: str) -> None:
        self.ends = False
        self._name = name
        self._rename = renaming(name)
        self._held = b""

    def __call__(self, piece: bytes) -> bytes:
        """What may pass of a piece. The end of one waits for the next: a name may lie across the two."""
        piece = self._rename(self._held + piece)
        if self.ends:
            return piece
        self._held = piece[-_HELD:]
        return piece[:-_HELD]

    def whole(self, answer: bytes) -> bytes:
        """An answer that came in one piece."""
        with suppress(RequestError, ValueError):  # a list, or JSON that only some readers take
            return replace_model(answer, self._name)
        return answer
