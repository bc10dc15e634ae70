"""``POST /api/reload``: reads the configuration again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.domain.errors import ConfigError, ConfigErrors, EnginehouseError, InvalidRequest, RequestError


class Reload:
    """Serves ``reload``, whose argument is whether this is a dry run."""

    def __init__(self, reload: Callable[[bool], Awaitable[object]]) -> None:
        self._reload = reload

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/reload", self.reload, methods=["POST"])]

    async def reload(self, request: Request) -> Response:
        """Reload the configuration; with ``?dry_run=true``, only return the changes."""
        asked = request.query_params.get("dry_run", "false")
        if asked not in ("true", "false"):
            raise InvalidRequest(f"dry_run is true or false, not '{asked}'", param="dry_run")
        try:
            return json_response(await self._reload(asked == "true"))
        except RequestError:
            raise
        except EnginehouseError as error:
            text = f"The configuration cannot be used, and nothing has changed:\n{error}"
            raise InvalidRequest(text, details={"errors": [_as_data(one) for one in _each(error)]}) from None


def _each(error: EnginehouseError) -> Sequence[EnginehouseError]:
    return error.errors if isinstance(error, ConfigErrors) else (error,)


def _as_data(error: EnginehouseError) -> dict[str, str]:
    if isinstance(error, ConfigError):
        return {"file": error.file, "key": error.key, "problem": error.problem, "remedy": error.remedy}
    return {"file": "", "key": "", "problem": str(error), "remedy": ""}
