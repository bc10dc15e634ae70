"""What a model's configuration takes out of request bodies and puts into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.config.schema import BodyFilters, Model
from enginehouse.routing.read import unreadable

_Object = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Object).decode
_encode = msgspec.json.encode
_PROTECTED = "model"


class FiltersByName:
    """The filters of a whole configuration: those of the model that serves, then those of the alias it was asked by."""

    __slots__ = ("_aliases", "_filters")

    def __init__(self, models: Mapping[str, Model], aliases: Mapping[str, str]) -> None:
        self._filters = {name: each for name, model in models.items() if (each := model.filters).strip or each.set}
        self._aliases = aliases

    def __bool__(self) -> bool:
        return bool(self._filters)

    def apply(self, raw: bytes, requested: str, model: str) -> bytes:
        """``raw`` as ``model`` gets it when a client asked for ``requested``; the same object if nothing filters it.

        Raises ``InvalidRequest`` as ``apply`` does.
        """
        if filters := self._filters.get(model):
            raw = apply(raw, filters)
        if requested != model and self._aliases.get(requested) == model and (filters := self._filters.get(requested)):
            raw = apply(raw, filters)
        return raw


def apply(raw: bytes, filters: BodyFilters) -> bytes:
    """``raw`` without the fields of ``filters.strip``, then with those of ``filters.set``; the model's name stays.

    Fields keep their order and new ones come last. The value of a field that no filter names stays as it was written.
    ``raw`` must have passed ``read_request``. Raises ``InvalidRequest`` for what that did not look at: keys that are no
    text.
    """
    try:
        fields = _fields(raw)
        for name in filters.strip:
            if (path := name.split("."))[0] != _PROTECTED:
                _strip(fields, path)
        for name, value in filters.set.items():
            if (path := name.split("."))[0] != _PROTECTED:
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
    """Put ``value`` in; what is on the way to it and is no object is replaced by one."""
    name, *rest = path
    if rest:
        inner = _inner(fields, name) or {}
        _set(inner, rest, value)
        value = inner
    fields[name] = msgspec.Raw(_encode(value))


def _inner(fields: _Object, name: str) -> _Object | None:
    value = bytes(fields.get(name, b""))
    return _fields(value) if value.startswith(b"{") else None
