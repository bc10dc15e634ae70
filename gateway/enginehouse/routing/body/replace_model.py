"""Replaces the model's name in a request body and keeps every other byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder

import msgspec

from enginehouse.routing.body.read import unreadable

_KEY = b'"model"'
_ESCAPED_LETTER = b"\\u006"
"""Every escaped letter of ``model`` begins like this; without it, the key has only one spelling."""
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_key = re.compile(_STRING).match
_gap = re.compile(rb"[ \t\r\n:,]*").match
_model_value = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(' + _STRING + rb")").search
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scan = JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_END_OF_VALUE = b",} \t\r\n"
_END_OF_OBJECT = ord("}")


def replace_model(raw: bytes, name: str) -> bytes:
    """Make ``name`` the value of every top-level ``model`` key.

    ``raw`` must have passed ``read_request``. Raises ``InvalidRequest`` for keys that are not UTF-8, which
    ``read_request`` does not check.
    """
    new = msgspec.json.encode(name)
    if surely_one_key(raw) and (only := _model_value(raw)):
        return b"".join((raw[: only.start(1)], new, raw[only.end(1) :]))
    pieces: list[bytes] = []
    at = 0
    try:
        for start, end in model_values(raw):
            pieces += raw[at:start], new
            at = end
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    return b"".join((*pieces, raw[at:]))


def surely_one_key(raw: bytes) -> bool:
    """Whether a quick search shows that ``raw`` has only one ``model`` key, at any depth."""
    return raw.count(_KEY) == 1 and _ESCAPED_LETTER not in raw


def model_values(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the value of each top-level ``model`` key.

    The decoder gives the length of each value, so values are skipped without a scan. For a repeated key it gives only
    the last value; the earlier ones are scanned.
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
