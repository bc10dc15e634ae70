"""Pages of an engine about one model, named in the query: ``GET /props?model=NAME``."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.pages.upstream import CallDoor
from enginehouse.domain.errors import InvalidRequest
from enginehouse.relay.jobs.engine_job import EngineCall

_PATHS = ("/props", "/slots", "/v1/audio/voices", "/sdapi/v1/loras")


class EnginePages:
    """Passes such a request to an engine of the model, as below ``/upstream/``. The query goes along."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route(path, self, methods=["GET"]) for path in _PATHS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = Request(scope).query_params.get("model", "")
        if not model:
            raise InvalidRequest("The query has no 'model': name the model, as in /props?model=NAME", param="model")
        target = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        await CallDoor(self._admission, EngineCall(model, "GET", target))(scope, receive, send)
