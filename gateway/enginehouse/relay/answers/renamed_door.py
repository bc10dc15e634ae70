"""The client's side of a request whose model has another name at its engine."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.relay.answers.passing_door import CuttingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.events.added_fields import Cut
from enginehouse.routing.body.replace_model import replace_model

_MODEL: Final = re.compile(rb'("model"[ \t\r\n]*:[ \t\r\n]*)"[^"\\]*(?:\\.[^"\\]*)*"')
_HELD: Final = 1024
"""Bytes: the most that the key and its value take in an answer that passes in pieces."""


def renaming(name: str) -> Cut:
    """Returns what makes ``name`` the value of each ``model`` in a piece of an answer.

    A quoted key cannot be part of a text, whose quotes are escaped.
    """
    value = msgspec.json.encode(name)

    def rename(piece: bytes) -> bytes:
        return _MODEL.sub(lambda found: found[1] + value, piece)

    return rename


class RenamedDoor(CuttingDoor):
    """Passes on an answer that is not a stream with the ``name`` that the client asked for as its ``model``."""

    __slots__ = ("_held", "_name")

    def __init__(self, door: Door, name: str, rename: Cut) -> None:
        super().__init__(door, rename)
        self._name = name
        self._held = b""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        with suppress(RequestError, ValueError):  # a list, or JSON that only some readers take
            body = replace_model(body, self._name)
        super().answer(status, lines, body)

    def write(self, chunk: bytes) -> None:
        """Pass on a piece. The end of one waits for the next: a name may lie across the two."""
        chunk = self._cut(self._held + chunk)
        chunk, self._held = chunk[:-_HELD], chunk[-_HELD:]
        if chunk:
            self._door.write(chunk)

    def finish(self, chunk: bytes) -> None:
        super().finish(self._held + chunk)
