"""The headers of a request that a page answers."""

from __future__ import annotations

from starlette.types import Scope

from enginehouse.domain.request import Headers


def headers_of(scope: Scope) -> Headers:
    """The headers of an HTTP request or a WebSocket handshake, with lower-case names."""
    return [(name.lower(), value) for name, value in scope["headers"]]
