"""``POST /api/reload``: the configuration read anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.entrance import Entrance
from enginehouse.api.errors import json_response
from enginehouse.api.guard import admin_only
from enginehouse.domain.errors import ConfigError, ConfigErrors, EnginehouseError, InvalidRequest, RequestError


class Reload:
    """The endpoint. ``reload`` is told whether only to say what would change; its answer is passed on."""

    def __init__(self, entrance: Entrance, reload: Callable[[bool], Awaitable[object]]) -> None:
        self._entrance = entrance
        self._reload = reload

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The endpoint; it asks for an admin key where keys are set."""
        return [Route("/api/reload", admin_only(self._entrance, self.reload), methods=["POST"])]

    async def reload(self, request: Request) -> Response:
        """Read the configuration anew and put it in force; with ``?dry_run=true`` only say what would change."""
        asked = request.query_params.get("dry_run", "false")
        if asked not in ("true", "false"):
            raise InvalidRequest(f"dry_run is true or false, not '{asked}'", param="dry_run")
        try:
            return json_response(await self._reload(asked == "true"))
        except RequestError:
            raise
        except EnginehouseError as error:
            text = f"The configuration cannot be used, and everything is as it was:\n{error}"
            raise InvalidRequest(text, details={"errors": [_told(one) for one in _each(error)]}) from None


def _each(error: EnginehouseError) -> Sequence[EnginehouseError]:
    return error.errors if isinstance(error, ConfigErrors) else (error,)


def _told(error: EnginehouseError) -> dict[str, str]:
    if isinstance(error, ConfigError):
        return {"file": error.file, "key": error.key, "problem": error.problem, "remedy": error.remedy}
    return {"file": "", "key": "", "problem": str(error), "remedy": ""}
