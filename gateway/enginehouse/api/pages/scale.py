"""``GET /api/scale``: how many replicas are wanted of each model, for operators and for autoscalers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.domain.errors import NotFound
from enginehouse.domain.scale_status import ScaleStatus


class ScalePages:
    """The models with a range of replicas, as ``status`` returns them."""

    def __init__(self, status: Callable[[], Sequence[ScaleStatus]]) -> None:
        self._status = status

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/scale", self.all), Route("/api/scale/{model:path}", self.one)]

    async def all(self, request: Request) -> Response:
        """``GET /api/scale``."""
        return json_response({"models": self._status()})

    async def one(self, request: Request) -> Response:
        """``GET /api/scale/{model}``. Raises ``NotFound`` for a model without a range of replicas."""
        name = request.path_params["model"]
        for each in self._status():
            if each.model == name:
                return json_response(each)
        raise NotFound(f"No model '{name}' has replicas = {{ min, max }}")
