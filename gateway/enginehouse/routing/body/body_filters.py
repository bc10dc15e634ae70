"""Body filters: fields that a model's configuration removes from request bodies or sets in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse.config.aliases import Aliases
from enginehouse.config.schema import BodyFilterSettings, ModelSettings
from enginehouse.routing.body.read import unreadable

_Object = dict[str, msgspec.Raw]
_fields: Final = msgspec.json.Decoder(_Object).decode
_encode: Final = msgspec.json.encode
_PROTECTED: Final = "model"


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
