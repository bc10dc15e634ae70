"""The deadline that a client gives its request."""

from __future__ import annotations

from typing import Final

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers

_LONGEST_MS: Final = 86_400_000


def deadline_in(headers: Headers) -> float | None:
    """The seconds in which the request is to be sent, from ``x-enginehouse-deadline`` in milliseconds.

    ``None`` if it has no such header. Raises ``InvalidRequest`` for another value.
    """
    for name, value in headers:
        if name == b"x-enginehouse-deadline":
            if value.isdigit() and int(value) <= _LONGEST_MS:
                return int(value) / 1000
            raise InvalidRequest("x-enginehouse-deadline must be a whole number of milliseconds, a day at most")
    return None
