"""What pages know of their gateway, and their queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from enginehouse import InvalidRequest, PageFacts

T = TypeVar("T")


def facts_of(request: Request) -> PageFacts:
    """The facts of the gateway that got ``request``."""
    facts: PageFacts = request.app.state.facts
    return facts


def read_query(query: Mapping[str, str], type: type[T], remedy: str) -> T:
    """The query as ``type``. Raises ``InvalidRequest``."""
    try:
        return msgspec.convert(dict(query), type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error} of the query; {remedy}") from None


def json_response(content: object) -> Response:
    """``content``, JSON-encoded."""
    return Response(msgspec.json.encode(content), media_type="application/json")
