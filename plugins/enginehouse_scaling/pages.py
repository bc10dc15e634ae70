"""``/api/scale``: how many replicas are wanted of each model, for operators and for autoscalers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.errors import NotFound
from enginehouse.pages import json_response
from enginehouse_scaling.decide import ScaleStatus


def scale_routes(rows: Callable[[], Sequence[ScaleStatus]]) -> Sequence[BaseRoute]:
    """The pages of all models, and of one."""

    async def scale(request: Request) -> Response:
        return json_response({"models": rows()})

    async def scale_of_one(request: Request) -> Response:
        name = request.path_params["model"]
        for each in rows():
            if each.model == name:
                return json_response(each)
        raise NotFound(f"No model '{name}' has replicas = {{ min, max }}")

    return [Route("/api/scale", scale), Route("/api/scale/{model:path}", scale_of_one)]
