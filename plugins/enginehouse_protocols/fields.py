"""Reads the fields of a request, with errors that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from enginehouse import InvalidRequest, UpstreamError
from enginehouse_protocols.bounds import check_body

T = TypeVar("T")


def read(body: bytes, type: type[T]) -> T:
    """``body`` as ``type``. Raises ``InvalidRequest`` that names the field at fault, or ``BodyTooLarge``."""
    check_body(body)
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        name = place.rstrip("`").lstrip(".") or None
        raise InvalidRequest(f"{f'{name}: ' if name else ''}{problem}", param=name) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}") from None


def of_engine(answer: Any, type: type[T]) -> T:
    """An engine's ``answer`` as ``type``. Raises ``UpstreamError`` that names the field at fault."""
    try:
        return msgspec.convert(answer, type)
    except msgspec.ValidationError as error:
        raise UpstreamError(f"The engine's answer cannot be read: {error}") from None


def number(fields: Mapping[str, Any], name: str) -> int | None:
    """The field, if it is a whole number."""
    value = fields.get(name)
    return value if type(value) is int else None


def event_bytes(type: str, fields: dict[str, Any]) -> bytes:
    """A server-sent event of a ``type`` that its data repeat."""
    return b"event: %s\ndata: %s\n\n" % (type.encode(), msgspec.json.encode({"type": type, **fields}))


def put(fields: dict[str, Any], **values: Any) -> None:
    """Add the values that are not ``None``."""
    fields.update((name, value) for name, value in values.items() if value is not None)


def json_text(value: Any) -> str:
    """``value`` as JSON text; a text stays as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parsed(text: str) -> Any:
    """The arguments of a tool call; an unreadable text becomes an object that holds it."""
    try:
        return msgspec.json.decode(text or "{}")
    except (ValueError, RecursionError):
        return {"arguments": text}
