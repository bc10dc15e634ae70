"""What headers tell the gateway: whose request it is, from one gateway to the next, and the client's deadline."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from enginehouse.domain.client_names import kept_name
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.repeated_headers import RepeatedHeaders
from enginehouse.domain.request import Headers

CALLER: Final = b"x-enginehouse-caller"
PRIORITY: Final = b"x-enginehouse-priority"
ATTEMPTS: Final = b"x-enginehouse-attempts: "
"""The beginning of the header line by which an answer says how many engines have had the request in vain."""
_LONGEST: Final = 1024
_LONGEST_MS: Final = 86_400_000
_NUMBER: Final = re.compile(rb"-?[0-9]{1,9}")


class Behalf(NamedTuple):
    """The name of a caller's key, and the priority of its requests."""

    caller: str
    priority: int

    def lines(self) -> bytes:
        """The header lines that tell it."""
        return b"%s: %s\r\n%s: %d\r\n" % (CALLER, quote(self.caller).encode(), PRIORITY, self.priority)


def read_behalf(headers: Headers) -> Behalf | None:
    """What ``lines`` told; ``None`` without a caller."""
    caller, priority = b"", 0
    for name, value in headers:
        if name == CALLER:
            caller = value
        elif name == PRIORITY and _NUMBER.fullmatch(value):
            priority = int(value)
    return Behalf(kept_name(unquote(caller.decode("latin-1"))), priority) if 0 < len(caller) <= _LONGEST else None


def wants_cache_line(headers: Headers) -> bool:
    """Whether the client asks how much of its prompt was cached, with ``x-enginehouse-explain: cache``."""
    if isinstance(headers, RepeatedHeaders):
        return headers.alike.wants_cache_line
    return (b"x-enginehouse-explain", b"cache") in headers


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
