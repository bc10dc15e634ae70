"""Fields that are added to requests, and the usage, which is removed from the streams that answer them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from enginehouse.relay.events.sse import read_events

Cut = Callable[[bytes], bytes]
"""Turns an engine's events into the client's."""

_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE: Final = b'"usage"'
_LEFT_OUT: Final = frozenset({"stream_options", "min_tokens", "max_completion_tokens", "n_predict"})
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def add_field(body: bytes, name: str, value: bytes) -> bytes:
    """Return ``body`` with one more field, or unchanged if it may already have that field. ``value`` is JSON."""
    if b'"%s"' % name.encode() in body:
        return body
    end = body.rindex(b"}")
    comma = b"" if body[:end].rstrip().endswith(b"{") else b","
    return b'%s%s"%s":%s}' % (body[:end], comma, name.encode(), value)


def one_token(body: bytes) -> bytes:
    """Return ``body`` as a request for one token, so that its engine reads the prompt."""
    fields: dict[str, object] = {name: value for name, value in _fields(body).items() if name not in _LEFT_OUT}
    return msgspec.json.encode({**fields, "max_tokens": 1, "stream": False})


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
