"""Errors of requests on their way between the owner and a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.domain.errors import RequestError


class SentError(msgspec.Struct, frozen=True, array_like=True):
    """An error as another process gets it. ``kind``: the class of a ``RequestError``."""

    kind: str
    message: str
    param: str | None = None
    details: dict[str, Any] = {}
    retry_after: int | None = None

    @classmethod
    def of(cls, error: Exception) -> SentError:
        if not isinstance(error, RequestError):
            return cls("RequestError", str(error))
        return cls(type(error).__name__, error.message, error.param, dict(error.details), error.retry_after)

    def received(self) -> RequestError:
        """The error that another process had."""
        kind = _kinds().get(self.kind, RequestError)
        made = kind.__new__(kind)  # the constructors of most kinds make the message from other things
        RequestError.__init__(made, self.message, param=self.param, details=self.details, retry_after=self.retry_after)
        return made


def _kinds() -> Mapping[str, type[RequestError]]:
    found: dict[str, type[RequestError]] = {}
    left = [RequestError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return found
