"""Makes one answer of the events of a stream."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.continuers import Gathering, MemoryShare, read_events
from enginehouse.errors import UpstreamError

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TRUE, _WITH_USAGE = msgspec.Raw(b"true"), msgspec.Raw(b'{"include_usage":true}')
_MOST_UNREAD = 8 * 1024
"""In bytes: about 40 events, which are read in less than 0.5 ms."""
MOST_GATHERED: Final = 64 << 20
"""In bytes: of one answer."""
_WHOLE = {"chat.completion.chunk": "chat.completion"}
_REPLACED = frozenset({"role", "id", "name", "type", "finish_reason", "object"})
"""Texts that come whole. All other texts come in pieces."""


_TEXT, _NUMBER, _PLACE, _OBJECT = 56, 32, 8, 200
"""In bytes: what a text takes beside its characters, a number, a place in a list, and a JSON object."""


class GatheredAnswer(Gathering):
    """Adds up the chunks of a chat or a completion.

    Texts and lists are joined; of anything else, the last value that is not null stays.
    """

    def __init__(self, share: MemoryShare) -> None:
        self._share = share
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._held: list[bytes] = []
        self._size = 0

    def as_stream(self, body: bytes) -> bytes:
        return msgspec.json.encode({**_raw_fields(body), "stream": _TRUE, "stream_options": _WITH_USAGE})

    def add(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > _MOST_UNREAD:
            self._read()

    def _read(self) -> None:
        pieces, self._held, self._size = self._held, [], 0
        for event in read_events(b"".join(pieces)):
            data = event.data
            if data is None or data.strip() == b"[DONE]":
                continue
            if event.name == "error":
                self.error = _decode(data)
            else:
                self._add(_decode(data))

    def release(self) -> None:
        self._fields.clear()
        self._choices.clear()
        self._share.give_back()

    def body(self) -> bytes:
        self._read()
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
                    added += _size_of(value)
                self._fields[name] = value
        if why := self._share.take(added):
            self.release()
            raise UpstreamError(f"The engine's answer was dropped while the gateway gathered it: {why}")


def _join(known: dict[str, Any], new: dict[str, Any]) -> int:
    """Add the fields of a later chunk to ``known``; texts are kept as lists of pieces. Returns what that takes."""
    added = 0
    for name, value in new.items():
        before = known.get(name)
        if isinstance(value, dict):
            if not isinstance(before, dict):
                before = known[name] = {}
                added += _size_of(before)
            added += _join(before, value)
        elif isinstance(value, str) and name not in _REPLACED:
            added += _size_of(value)
            if isinstance(before, _Text):
                before.append(value)
            else:
                known[name] = _Text((value,))
        elif isinstance(value, list) and isinstance(before, list):
            added += _size_of(value)
            before += value
        elif value is not None or name not in known:
            if name not in known:
                added += _size_of(value)
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


def _size_of(value: Any) -> int:
    """The bytes that a decoded JSON value takes, roughly."""
    if isinstance(value, str):
        return _TEXT + len(value)
    if isinstance(value, list):
        return sum([_PLACE + _size_of(each) for each in value], _TEXT)
    if isinstance(value, dict):
        return sum([_TEXT + _size_of(each) for each in value.values()], _OBJECT)
    return _NUMBER
