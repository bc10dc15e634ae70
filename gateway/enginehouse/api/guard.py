"""What only operators may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.entrance import Entrance

Endpoint = Callable[[Request], Awaitable[Response]]


def admin_only(entrance: Entrance, endpoint: Endpoint) -> Endpoint:
    """``endpoint`` for those who show an admin key, where keys are set."""

    async def guarded(request: Request) -> Response:
        entrance.keyring.check_admin(request.headers.raw)
        return await endpoint(request)

    return guarded
