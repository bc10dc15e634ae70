"""Reads the fields of a request, with errors that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from enginehouse import InvalidRequest
from enginehouse.errors import UpstreamError
from enginehouse_protocols.bounds import check_body

T = TypeVar("T")


def read(body: bytes, type: type[T]) -> T:
    """``body`` as ``type``. Raises ``InvalidRequest`` that names the field at fault, or ``BodyTooLarge``."""
    check_body(body)
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}") from None


def invalid(error: msgspec.ValidationError, within: str = "") -> InvalidRequest:
    """The error for a field of the wrong type. ``within``: the field that has it."""
    problem, _, place = str(error).partition(" - at `$")
    name = f"{within}{place.rstrip('`')}".lstrip(".") or None
    return InvalidRequest(f"{f'{name}: ' if name else ''}{problem}", param=name)


def raw_text(text: msgspec.Raw, field: str) -> memoryview:
    """The JSON text ``text`` without its first quote, not decoded: images are large. Raises ``InvalidRequest``."""
    view = memoryview(text)
    if bytes(view[:1]) != b'"':
        raise InvalidRequest(f"{field}: Expected `str`", param=field)
    return view[1:]


def data_url(media_type: str, data: msgspec.Raw, field: str) -> msgspec.Raw:
    """The ``data:`` URL of what is in base64, as JSON."""
    head = msgspec.json.encode(f"data:{media_type};base64,")[:-1]
    return msgspec.Raw(b"".join([head, raw_text(data, field)]))


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


def parsed(text: str) -> dict[str, Any]:
    """The arguments of a tool call. What is not an object becomes one that holds it."""
    try:
        found = msgspec.json.decode(text.strip() or "{}")
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"arguments": found}
