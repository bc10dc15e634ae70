"""``/api/cluster``, ``/api/migrations`` and ``/api/scale``: what rescheduling and scaling see and do."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import NotFound
from enginehouse_operations.pages.reading import facts_of, json_response


async def _cluster(request: Request) -> Response:
    """The instances with their figures: a VIEW.json for ``enginehouse explain rescheduling``."""
    return json_response(await facts_of(request).cluster())


async def _migrations(request: Request) -> Response:
    """The last migrations, newest first."""
    return json_response({"migrations": list(facts_of(request).migrations())[::-1]})


async def _scale(request: Request) -> Response:
    """How many replicas are wanted of each model, for operators and for autoscalers."""
    return json_response({"models": facts_of(request).scale()})


async def _scale_of_one(request: Request) -> Response:
    name = request.path_params["model"]
    for each in facts_of(request).scale():
        if each.model == name:
            return json_response(each)
    raise NotFound(f"No model '{name}' has replicas = {{ min, max }}")


CLUSTER_ROUTES = [
    Route("/api/cluster", _cluster),
    Route("/api/migrations", _migrations),
    Route("/api/scale", _scale),
    Route("/api/scale/{model:path}", _scale_of_one),
]
