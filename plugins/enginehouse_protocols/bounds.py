"""Bounds the work of translating a request, which blocks the event loop.

The figures behind the bounds, of CPython 3.11 on one core of 2020: a byte of plain text costs 1 ns and one of other
text 2, an escape 6 ns, a JSON value 0.1 µs, a translated item up to 2 µs.
"""

from __future__ import annotations

from typing import Final

from enginehouse.errors import BodyTooLarge

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
