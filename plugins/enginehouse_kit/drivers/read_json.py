"""Reads the JSON that an engine answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from enginehouse.drivers import EngineResponse
from enginehouse.errors import UpstreamError

T = TypeVar("T")


def read_json(response: EngineResponse, type: type[T]) -> T:
    """Decode the JSON body of a 200 response as ``type``. Raises ``UpstreamError`` for any other response."""
    if response.status != 200:
        raise UpstreamError(f"The engine answered {response.status} instead of 200")
    try:
        return msgspec.json.decode(response.body, type=type)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"The engine's answer cannot be decoded: {error}") from None
