"""Which pieces of an engine's answer belong to which call of a tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from enginehouse_protocols.said.said import Call, CallBegins, CallGoesOn, Said


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

    def take(self, piece: CallPiece, said: list[Said]) -> None:
        """Add what a piece says. A call begins once its name is known."""
        call, arguments = self._owner(piece), piece.arguments
        if call in self._begun:
            if arguments and not call.is_whole:
                call.add(arguments)
                said.append(CallGoesOn(call, arguments))
            return
        call.name = call.name or piece.name
        call.id = piece.id or call.id
        if arguments and not call.is_whole:
            call.add(arguments)
        if call.name:
            self._begun.add(call)
            call.id = call.id or next(self._make_id)
            self._by_id[call.id] = call
            said.append(CallBegins(call))
            if text := call.arguments:
                said.append(CallGoesOn(call, text))

    def _owner(self, piece: CallPiece) -> Call:
        """The call that a piece belongs to, which may be new."""
        index, id = piece.place, piece.id
        known = self._by_id.get(id) if id else self._by_index.get(index) if index is not None else self._latest
        if id and known is None and index is not None:
            known = self._by_index.get(index)
            if known is not None and known.id:
                known = None  # another call at the same index
        if known is None or (not id and _is_another(known, piece)):
            known = Call(id, piece.name)
        if id:
            self._by_id[id] = known
        if index is not None:
            self._by_index[index] = known
        self._latest = known
        return known


def _is_another(known: Call, piece: CallPiece) -> bool:
    """Whether a piece without an id begins another call than the one ``known`` at its place."""
    if not piece.name or not known.name:
        return False
    if piece.name != known.name:
        return True
    return known.is_whole and piece.arguments.strip() not in ("", known.arguments.strip())
