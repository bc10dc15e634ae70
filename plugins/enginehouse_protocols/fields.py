"""Reads the fields of a request, with errors that name them, and bounds the work of translating it.

That work blocks the event loop. The figures behind the bounds, of CPython 3.11 on one core of 2020: a byte of plain
text costs 1 ns and one of other text 2, an escape 6 ns, a JSON value 0.1 µs, a translated item up to 2 µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from enginehouse import InvalidRequest
from enginehouse.errors import BodyTooLarge, UpstreamError

T = TypeVar("T")
_MOST_WORK: Final = 40_000_000
"""Of a body's bytes, in nanoseconds: 32 MiB of an image in base64 pass, and 6 MiB of nothing but escapes."""
_MOST_VALUES: Final = 200_000
"""A conversation of a million tokens with a hundred tools has a quarter of them."""
_MOST_ITEMS: Final = 10_000
"""Messages, their parts, tools and calls."""
_FEW: Final = 1000
"""Above so many occurrences of a sign, counting is faster than searching."""
_COUNTED: Final = 4 << 20
"""Bytes of a body in which separators within texts are told apart from the others, which takes up to 5 ns a byte."""


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
    """The arguments of a tool call. What is not an object becomes one that holds it; ``null`` are none."""
    try:
        found = msgspec.json.decode(text.strip() or "{}")
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {} if found is None else {"arguments": found}


def check_body(body: bytes) -> None:
    """Raises ``BodyTooLarge`` for a ``body`` that takes too long to decode and to encode again."""
    if len(body) * (1 if body.isascii() else 2) + 6 * _count(body, b"\\") > _MOST_WORK:
        raise BodyTooLarge(
            "The request has too much text to be translated for the engine: send a shorter one, or send it to "
            "/v1/chat/completions"
        )
    if _separators(body) > _MOST_VALUES and (len(body) > _COUNTED or _separators(_without_texts(body)) > _MOST_VALUES):
        raise BodyTooLarge(
            f"The request has more than {_MOST_VALUES} JSON values: send fewer, or send it to /v1/chat/completions"
        )


class ItemCount:
    """Counts the messages, parts, tools and calls of a request."""

    def __init__(self) -> None:
        self._left = _MOST_ITEMS

    def add(self, count: int) -> None:
        """Raises ``BodyTooLarge`` if there are too many together."""
        self._left -= count
        if self._left < 0:
            raise BodyTooLarge(
                f"The request has more than {_MOST_ITEMS} messages, parts, tools and calls together: send fewer, or "
                "send it to /v1/chat/completions"
            )


def _separators(text: bytes) -> int:
    """At least the number of values of the JSON ``text``: each one follows a comma or an opening bracket."""
    return _count(text, b",") + _count(text, b"[") + _count(text, b"{")


def _count(text: bytes, sign: bytes) -> int:
    """As ``text.count(sign)``, which takes 10 ms for an image of 32 MiB: a search for the next one takes 3."""
    at = count = 0
    while (at := text.find(sign, at) + 1) > 0:
        count += 1
        if count == _FEW:
            return count + text.count(sign, at)
    return count


def _without_texts(body: bytes) -> bytes:
    """``body`` without what is in quotes, as far as the bound of values."""
    parts = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', 2 * _MOST_VALUES)
    return b"".join(parts[::2])
