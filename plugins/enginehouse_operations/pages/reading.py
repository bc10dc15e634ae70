"""What pages know of their gateway, and their queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from enginehouse import InvalidRequest
from enginehouse.api.page_facts import OperatedGateway
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
    """The query as ``type``. Raises ``InvalidRequest``."""
    try:
        return msgspec.convert(dict(query), type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error} of the query; {remedy}") from None


async def read_body(request: Request, type: type[T], remedy: str) -> T:
    """The JSON body as ``type``. ``remedy``: what to send. Raises ``InvalidRequest``."""
    try:
        return msgspec.json.decode(await request.body(), type=type)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{error}; send {remedy}") from None


def json_response(content: object) -> Response:
    """``content``, JSON-encoded."""
    return Response(msgspec.json.encode(content), media_type="application/json")
