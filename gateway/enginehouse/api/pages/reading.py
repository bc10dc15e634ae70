"""Reads the bodies of operators' requests."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request

from enginehouse.domain.errors import InvalidRequest

T = TypeVar("T")


async def read_body(request: Request, type: type[T], remedy: str) -> T:
    """The JSON body as ``type``. ``remedy``: what to send. Raises ``InvalidRequest``."""
    try:
        return msgspec.json.decode(await request.body(), type=type)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{error}; send {remedy}") from None
