"""Errors of requests on their way between the owner and a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.domain.errors import RequestError


class TellingError(msgspec.Struct, frozen=True, array_like=True):
    """A ``RequestError`` on its way. ``kind``: its class."""

    kind: str
    message: str
    param: str | None = None
    details: dict[str, Any] = {}
    retry_after: int | None = None


def telling(error: Exception) -> TellingError:
    """``error`` for another process."""
    if not isinstance(error, RequestError):
        return TellingError("RequestError", str(error))
    return TellingError(type(error).__name__, error.message, error.param, dict(error.details), error.retry_after)


def told(error: TellingError) -> RequestError:
    """The error that another process had."""
    kind = _kinds().get(error.kind, RequestError)
    made = kind.__new__(kind)
    RequestError.__init__(made, error.message, param=error.param, details=error.details, retry_after=error.retry_after)
    return made


def _kinds() -> Mapping[str, type[RequestError]]:
    found: dict[str, type[RequestError]] = {}
    left = [RequestError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return found
