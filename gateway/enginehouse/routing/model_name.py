"""Another model name in a request body whose every other byte stays as it came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder

import msgspec

from enginehouse.routing.read import unreadable

_KEY = b'"model"'
_ESCAPED_LETTER = b"\\u006"
"""How every escaped letter of ``model`` begins: without it, the key cannot be spelled in another way."""
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_key = re.compile(_STRING).match
_gap = re.compile(rb"[ \t\r\n:,]*").match
_model_value = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(' + _STRING + rb")").search
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scan = JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_END_OF_VALUE = b",} \t\r\n"
_END_OF_OBJECT = ord("}")


def replace_model(raw: bytes, name: str) -> bytes:
    """``raw`` with ``name`` as the value of every ``model`` key at its top.

    ``raw`` must have passed ``read_request``. Raises ``InvalidRequest`` for what that did not look at: keys that are
    not UTF-8.
    """
    new = msgspec.json.encode(name)
    if raw.count(_KEY) == 1 and _ESCAPED_LETTER not in raw and (only := _model_value(raw)):
        return b"".join((raw[: only.start(1)], new, raw[only.end(1) :]))
    pieces: list[bytes] = []
    at = 0
    try:
        for start, end in _top_level_models(raw):
            pieces += raw[at:start], new
            at = end
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    return b"".join((*pieces, raw[at:]))


def _top_level_models(raw: bytes) -> Iterator[tuple[int, int]]:
    """Where the values of the ``model`` keys at the top of ``raw`` start and end.

    The decoder tells how long the value of each key is, so that values are stepped over and not scanned. Of a key that
    occurs several times it tells the last value only; the others have to be scanned.
    """
    values = {key: bytes(value) for key, value in _raw_values(raw).items()}
    text = ""
    at = _at(_gap(raw, raw.index(b"{") + 1))
    while raw[at] != _END_OF_OBJECT:
        start = _at(_gap(raw, after_key := _at(_key(raw, at))))
        key: str = msgspec.json.decode(raw[at:after_key])
        end = start + len(values[key])
        if raw[end] not in _END_OF_VALUE or not raw.startswith(values[key], start):
            text = text or raw.decode("latin-1")
            end = _scan(text, start)[1]
        if key == "model":
            yield start, end
        at = _at(_gap(raw, end))


def _at(match: re.Match[bytes] | None) -> int:
    assert match is not None, "the body was found to be JSON before"
    return match.end()
