"""Reads what operators' requests ask for. What cannot be read raises ``InvalidRequest``."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request

from enginehouse.domain.errors import InvalidRequest

T = TypeVar("T")


async def read_body(request: Request, type: type[T], remedy: str) -> T:
    """The JSON body as ``type``. ``remedy``: what to send."""
    try:
        return msgspec.json.decode(await request.body(), type=type)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{error}; send {remedy}") from None


def read_limit(request: Request, most: int) -> int:
    """``?limit=N``, at most ``most``; 100 by default."""
    text = request.query_params.get("limit", "100")
    # int() takes seconds for millions of digits
    limit = int(text) if text.isdecimal() and len(text) <= len(str(most)) else 0
    if not 1 <= limit <= most:
        raise InvalidRequest(f"'limit' must be a number from 1 to {most}", param="limit")
    return limit
