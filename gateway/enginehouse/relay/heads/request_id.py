"""The id that a client gives its request."""

from __future__ import annotations

from typing import Final

from enginehouse.domain.request import Headers

_LONGEST: Final = 128


def request_id_in(headers: Headers) -> bytes:
    """The id that the client gave its request; empty if there is none, or none to be used."""
    for name, value in headers:
        if name == b"x-request-id" and 0 < len(value) <= _LONGEST and value.isascii():
            return value
    return b""
