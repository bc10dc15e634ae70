"""Which pieces of an engine's answer belong to which call of a tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from enginehouse.errors import UpstreamError
from enginehouse_protocols.said.said import Call, CallBegins, CallGoesOn, Said

_MOST: Final = 1024
"""Calls of one answer."""


class CallPiece(NamedTuple):
    """A piece of a call as an engine sends it. Any part may be missing."""

    place: int | None
    id: str
    name: str
    arguments: str


class Calls:
    """The calls of one answer. ``make_id`` names those that have no id.

    A piece belongs to the call with its id; without one, to the call at its index; without both, to the latest. Some
    engines give every call the same index, repeat names in every piece, or send a call once more when it is whole.
    """

    def __init__(self, make_id: Iterator[str]) -> None:
        self._make_id = make_id
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._latest: Call | None = None
        self._begun: set[Call] = set()
        self._named_here: set[Call] = set()

    def take(self, piece: CallPiece, said: list[Said]) -> None:
        """Add what a piece says. A call begins once its name is known. Raises ``UpstreamError`` for too many calls."""
        call, arguments = self._owner(piece), piece.arguments
        if call in self._begun:
            if arguments and not call.is_whole:
                call.add(arguments)
                said.append(CallGoesOn(call, arguments))
            return
        call.name = call.name or piece.name
        if arguments and not call.is_whole:
            call.add(arguments)
        if call.name:
            self._begin(call, said)

    def _begin(self, call: Call, said: list[Said]) -> None:
        self._begun.add(call)
        if len(self._begun) > _MOST:
            raise UpstreamError(f"The engine's answer cannot be read: it calls more than {_MOST} tools")
        if not call.id:
            call.id = next(self._make_id)
            self._named_here.add(call)
        said.append(CallBegins(call))
        if text := call.arguments:
            said.append(CallGoesOn(call, text))

    def _owner(self, piece: CallPiece) -> Call:
        """The call that a piece belongs to, which may be new."""
        call = self._by_its_id(piece) if piece.id else self._without_id(piece)
        if piece.id:
            self._by_id.setdefault(piece.id, call)
        if piece.place is not None:
            self._by_index[piece.place] = call
        self._latest = call
        return call

    def _by_its_id(self, piece: CallPiece) -> Call:
        id, index = piece.id, piece.place
        there = None if index is None else self._by_index.get(index)
        known = self._by_id.get(id)
        if known is None:
            if there is None or (there.id and there not in self._named_here):
                return Call(id, piece.name)  # perhaps another one at the same index
            there.id = there.id or id  # it comes later than the call
            return there
        repeats = (piece.name, piece.arguments.strip()) == (known.name, known.arguments.strip())
        if index is None or index < 0 or there is known or not piece.name or repeats:
            return known
        return there or Call("", piece.name)  # an engine that gives all calls the same id

    def _without_id(self, piece: CallPiece) -> Call:
        known = self._latest if piece.place is None else self._by_index.get(piece.place)
        return Call("", piece.name) if known is None or _is_another(known, piece) else known


def _is_another(known: Call, piece: CallPiece) -> bool:
    """Whether a piece begins another call than the one ``known`` by its id or its place."""
    if not piece.name or not known.name:
        return False
    if piece.name != known.name:
        return True
    return known.is_whole and piece.arguments.strip() not in ("", known.arguments.strip())
