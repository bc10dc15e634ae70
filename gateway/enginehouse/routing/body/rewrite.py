"""Changes request bodies: replaces the model's name, and applies the body filters of a model. Compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any, Final

import msgspec

from enginehouse.config.routing import Aliases
from enginehouse.config.schema import BodyFilterSettings, ModelSettings
from enginehouse.domain.errors import InvalidRequest
from enginehouse.routing.body.read import unreadable

_Object = dict[str, msgspec.Raw]
_fields: Final = msgspec.json.Decoder(_Object).decode
_encode: Final = msgspec.json.encode
_MODEL: Final = "model"
"""The field that body filters cannot change."""
_KEY: Final = b'"model"'
_ESCAPED_LETTER: Final = b"\\u006"
"""Every escaped letter of ``model`` begins like this; without it, the key has only one spelling."""
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_key: Final = re.compile(_STRING).match
_gap: Final = re.compile(rb"[ \t\r\n:,]*").match
_model_value: Final = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(' + _STRING + rb")").search
_scan: Final = JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_END_OF_VALUE: Final = b",} \t\r\n"
_END_OF_OBJECT: Final = ord("}")


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


def add_field(body: bytes, name: str, value: bytes) -> bytes:
    """Return ``body`` with one more field, or unchanged if it may already have that field. ``value`` is JSON."""
    if b'"%s"' % name.encode() in body:
        return body
    end = body.rindex(b"}")
    comma = b"" if body[:end].rstrip().endswith(b"{") else b","
    return b'%s%s"%s":%s}' % (body[:end], comma, name.encode(), value)


def surely_one_key(raw: bytes) -> bool:
    """Whether a quick search shows that ``raw`` has only one ``model`` key, at any depth."""
    return raw.count(_KEY) == 1 and _ESCAPED_LETTER not in raw


def model_values(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the value of each top-level ``model`` key.

    The decoder gives the length of each value, so values are skipped without a scan. For a repeated key it gives only
    the last value; the earlier ones are scanned.
    """
    values = {key: bytes(value) for key, value in _fields(raw).items()}
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


def check_one_model(raw: bytes) -> None:
    """Raise ``InvalidRequest`` for a second ``model`` key in the object ``raw``, or one such as ``Model``.

    Parsers differ in which of two equal keys they take, and some match keys without case, as Go's ``encoding/json``
    does. So an engine might serve another model than the one that was checked. ``raw`` must have passed
    ``read_request``.
    """
    try:
        variants = sum(key.casefold() == _MODEL for key in _fields(raw))
        several = variants > 1 or not (surely_one_key(raw) or sum(1 for _ in model_values(raw)) == 1)
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    if several:
        raise InvalidRequest(
            "The body has several 'model' keys, and your API key may not use every model: name one model, once",
            param=_MODEL,
        )


class FiltersByName:
    """The body filters of all models and aliases. ``change_any``: whether any of these has filters."""

    __slots__ = ("_filters", "aliases", "change_any")

    def __init__(self, models: Mapping[str, ModelSettings], aliases: Aliases) -> None:
        self._filters = {name: each for name, model in models.items() if (each := model.filters).strip or each.set}
        self.aliases = aliases
        self.change_any = bool(self._filters)

    def apply(self, raw: bytes, requested: str, model: str) -> bytes:
        """Apply the filters of ``model``, then those of the alias ``requested``; without any, return ``raw``.

        Raises ``InvalidRequest`` as the function ``apply`` does.
        """
        if filters := self._filters.get(model):
            raw = apply(raw, filters)
        filters = self._filters.get(requested) if requested != model else None
        if filters is not None and model in self.aliases.targets(requested):
            raw = apply(raw, filters)
        return raw


def apply(raw: bytes, filters: BodyFilterSettings) -> bytes:
    """Remove the fields of ``filters.strip``, then set those of ``filters.set``. The model's name stays.

    Fields keep their order; new ones come last. Other values keep their spelling. ``raw`` must have passed
    ``read_request``. Raises ``InvalidRequest`` for keys that are not UTF-8, which ``read_request`` does not check.
    """
    try:
        fields = _fields(raw)
        for name in filters.strip:
            if (path := name.split("."))[0] != _MODEL:
                _strip(fields, path)
        for name, value in filters.set.items():
            if (path := name.split("."))[0] != _MODEL:
                _set(fields, path, value)
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    return _encode(fields)


def _strip(fields: _Object, path: Sequence[str]) -> None:
    name, *rest = path
    if not rest:
        fields.pop(name, None)
    elif (inner := _inner(fields, name)) is not None:
        _strip(inner, rest)
        fields[name] = msgspec.Raw(_encode(inner))


def _set(fields: _Object, path: Sequence[str], value: Any) -> None:
    """Set the value at ``path``. A value on the way that is not an object is replaced by one."""
    name, *rest = path
    if rest:
        inner = _inner(fields, name) or {}
        _set(inner, rest, value)
        value = inner
    fields[name] = msgspec.Raw(_encode(value))


def _inner(fields: _Object, name: str) -> _Object | None:
    value = bytes(fields.get(name, b""))
    return _fields(value) if value.startswith(b"{") else None
