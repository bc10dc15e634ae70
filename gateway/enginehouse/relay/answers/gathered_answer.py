"""Makes one answer of the events of a stream."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.relay.engine_memory import EngineMemory, EngineShare, size_of
from enginehouse.relay.events.sse import read_events

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_MOST_UNREAD = 8 * 1024
"""In bytes: about 40 events, which are read in less than 0.5 ms."""
_MOST: Final = 64 << 20
"""In bytes: of one answer."""
_WHOLE = {"chat.completion.chunk": "chat.completion"}
_REPLACED = frozenset({"role", "id", "name", "type", "finish_reason", "object"})
"""Texts that come whole. All other texts come in pieces."""


class GatheredAnswer:
    """Adds up the chunks of a chat or a completion.

    Texts and lists are joined; of anything else, the last value that is not null stays. ``error``: the data of an error
    event, which ends the stream. ``why``: why nothing is kept any more; empty if all is.
    """

    __slots__ = ("_choices", "_fields", "_held", "_share", "_size", "error", "why")

    def __init__(self, memory: EngineMemory) -> None:
        self._share = EngineShare(memory, "gathered", _MOST)
        self.why = ""
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._held: list[bytes] = []
        self._size = 0
        self.error: dict[str, Any] | None = None

    def add(self, piece: bytes) -> None:
        """Take whole events; read them when they are many. Raises ``ValueError`` for one that is not a JSON object."""
        self._held.append(piece)
        self._size += len(piece)
        if self._size > _MOST_UNREAD:
            self.read()

    def read(self) -> None:
        """Read the rest of the events. Raises as ``add`` does."""
        pieces, self._held, self._size = self._held, [], 0
        for event in read_events(b"".join(pieces)):
            data = event.data
            if data is None or data.strip() == b"[DONE]":
                continue
            if event.name == "error":
                self.error = _decode(data)
            elif not self.why:
                self._add(_decode(data))

    def release(self) -> None:
        """Drop everything."""
        self._fields.clear()
        self._choices.clear()
        self._share.give_back()

    def body(self) -> bytes:
        """The answer as the engine would have sent it without a stream."""
        choices = [_whole(choice) for _, choice in sorted(self._choices.items())]
        fields = {"choices": choices, **self._fields}
        kind = fields.get("object")
        return msgspec.json.encode({**fields, "object": _WHOLE.get(kind, kind)} if kind is not None else fields)

    def _add(self, chunk: dict[str, Any]) -> None:
        added = 0
        choices = chunk.pop("choices", None)
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(index := choice.get("index", 0), int):
                added += _join(self._choices.setdefault(index, {}), choice)
        for name, value in chunk.items():
            if value is not None:
                if name not in self._fields:
                    added += size_of(value)
                self._fields[name] = value
        if why := self._share.take(added):
            self.why = why
            self.release()


def _join(known: dict[str, Any], new: dict[str, Any]) -> int:
    """Add the fields of a later chunk to ``known``; texts are kept as lists of pieces. Returns what that takes."""
    added = 0
    for name, value in new.items():
        before = known.get(name)
        if isinstance(value, dict):
            if not isinstance(before, dict):
                before = known[name] = {}
                added += size_of(before)
            added += _join(before, value)
        elif isinstance(value, str) and name not in _REPLACED:
            added += size_of(value)
            if isinstance(before, _Text):
                before.append(value)
            else:
                known[name] = _Text((value,))
        elif isinstance(value, list) and isinstance(before, list):
            added += size_of(value)
            before += value
        elif value is not None or name not in known:
            if name not in known:
                added += size_of(value)
            known[name] = value
    return added


class _Text(list[str]):
    """The pieces of a text."""


def _whole(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with whole texts, and a message instead of deltas."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            value = _whole(value)
        elif isinstance(value, _Text):
            value = "".join(value)
        made["message" if name == "delta" else name] = value
    return made
