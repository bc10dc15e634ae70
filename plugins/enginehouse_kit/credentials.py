"""What requests show of credentials, for authenticators."""

from __future__ import annotations

from typing import Final

from enginehouse import Headers

__all__ = ["shown_credentials"]

_BEARER: Final = b"bearer "
_MOST_SHOWN: Final = 4
"""The most credentials in one head that are tried."""


def credential_header(headers: Headers) -> bytes:
    """The value of the header that shows a credential, with ``Bearer `` if that is ``Authorization``; empty for none.

    Headers are ``Authorization: Bearer``, ``x-api-key`` and ``api-key``.
    """
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            return value
        if name == b"x-api-key" or name == b"api-key":
            return b"bearer " + value
    return b""


def credential_headers(headers: Headers) -> list[bytes]:
    """As ``credential_header``, of all headers that show one, up to a few: checking one may take long."""
    found = [credential_header([header]) for header in headers]
    return [value for value in found if bare(value)][:_MOST_SHOWN]


def bare(value: bytes) -> bytes:
    """The credential in what ``credential_header`` has returned."""
    return value[7:].strip()


def shown_credentials(head: Headers) -> list[bytes]:
    """What a request shows in ``Authorization: Bearer``, ``x-api-key`` and ``api-key``, for authenticators."""
    return [bare(value) for value in credential_headers(head)]
