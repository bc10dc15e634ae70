"""What pages know of their gateway, their queries and bodies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TypeVar

import msgspec
from starlette.requests import Request

from enginehouse import InvalidRequest, parse_duration
from enginehouse.http.page_facts import OperatedGateway
from enginehouse.pages import PageFacts

T = TypeVar("T")


def facts_of(request: Request) -> PageFacts:
    """The facts of the gateway that got ``request``."""
    facts: PageFacts = request.app.state.facts
    return facts


def gateway_of(request: Request) -> OperatedGateway:
    """The gateway that got ``request``."""
    return facts_of(request).gateway


def read_query(query: Mapping[str, str], type: type[T], remedy: str) -> T:
    """The query as ``type``, without what is empty in it. Raises ``InvalidRequest``."""
    try:
        return msgspec.convert({name: value for name, value in query.items() if value}, type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error} of the query; {remedy}") from None


def read_flag(request: Request, name: str) -> bool:
    """A value of the query that is true or false, by default false. Raises ``InvalidRequest``."""
    asked = request.query_params.get(name, "false")
    if asked not in ("true", "false"):
        raise InvalidRequest(f"'{name}' is true or false, not '{asked}'", param=name)
    return asked == "true"


def read_limit(request: Request, most: int) -> int:
    """The ``limit`` of the query, from 1 to ``most``, by default 100. Raises ``InvalidRequest``."""
    limit = request.query_params.get("limit") or "100"
    # int() takes seconds for millions of digits
    asked = int(limit) if limit.isdecimal() and len(limit) <= len(str(most)) else 0
    if not 1 <= asked <= most:
        raise InvalidRequest(f"'limit' must be a number from 1 to {most}", param="limit")
    return asked


def read_time(text: str, now: float) -> float:
    """A moment in seconds since the epoch: a date or time in ISO 8601, such seconds, or how long ago, as ``7d``.

    Raises ``InvalidRequest``.
    """
    with suppress(ValueError):
        if math.isfinite(seconds := float(text)):
            return seconds
    with suppress(ValueError):
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    with suppress(ValueError):
        return now - parse_duration(text)
    raise InvalidRequest(f"'{text}' is not a time: write 7d, 2026-01-31 or seconds since 1970", param="since")


async def read_body(request: Request, type: type[T], remedy: str) -> T:
    """The JSON body as ``type``. ``remedy``: what to send. Raises ``InvalidRequest``."""
    try:
        return msgspec.json.decode(await request.body(), type=type)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{error}; send {remedy}") from None
