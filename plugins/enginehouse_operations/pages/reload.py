"""``POST /api/reload``: reads the configuration again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import EnginehouseError, InvalidRequest, RequestError
from enginehouse_operations.pages.reading import gateway_of, json_response


async def _reload(request: Request) -> Response:
    """Reload the configuration; with ``?dry_run=true``, only return the changes.

    With ``?take_over=true``, another gateway takes over, so that everything in the configuration applies.
    """
    dry_run, take_over = _flag(request, "dry_run"), _flag(request, "take_over")
    gateway = gateway_of(request)
    try:
        reloaded = await gateway.reload(dry_run or take_over)
        if take_over and not dry_run:
            pid = await _take_over(gateway.replacement())
            reloaded = msgspec.structs.replace(reloaded, applied=True, taken_over_by=pid)
        return json_response(reloaded)
    except RequestError:
        raise
    except EnginehouseError as error:
        text = f"The configuration cannot be used, and nothing has changed:\n{error}"
        raise InvalidRequest(text, details={"errors": error.rows()}) from None


async def _take_over(replace: Callable[[], Awaitable[int]] | None) -> int:
    if replace is None:
        raise InvalidRequest("This gateway was not started by `enginehouse serve`: nothing can take over from it")
    return await replace()


def _flag(request: Request, name: str) -> bool:
    asked = request.query_params.get(name, "false")
    if asked not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, not '{asked}'", param=name)
    return asked == "true"


RELOAD = Route("/api/reload", _reload, methods=["POST"])
