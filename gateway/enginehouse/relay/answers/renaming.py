"""Gives the model in answers the name that the client asked for, if its engine has another one."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.relay.events.added_fields import Cut
from enginehouse.routing.body.rewrite import replace_model

_MODEL: Final = re.compile(rb'("model"[ \t\r\n]*:[ \t\r\n]*)"[^"\\]*(?:\\.[^"\\]*)*"')
_HELD: Final = 1024
"""Bytes: the most that the key and its value take in an answer that passes in pieces."""


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
