"""``/api/cluster``, ``/api/migrations`` and ``/api/scale``: what rescheduling and scaling see and do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.domain.errors import NotFound
from enginehouse.domain.scale_status import ScaleStatus


def cluster_pages(view: Callable[[], Awaitable[Any]], records: Callable[[], Iterable[Any]]) -> list[BaseRoute]:
    """``view`` makes a view of the cluster, ``records`` returns the last migrations, oldest first."""

    async def cluster(request: Request) -> Response:
        """The instances with their figures: a VIEW.json for ``enginehouse explain rescheduling``."""
        return json_response(await view())

    async def migrations(request: Request) -> Response:
        """The last migrations, newest first."""
        return json_response({"migrations": list(records())[::-1]})

    return [Route("/api/cluster", cluster), Route("/api/migrations", migrations)]


def scale_pages(status: Callable[[], Sequence[ScaleStatus]]) -> list[BaseRoute]:
    """How many replicas are wanted of each model, for operators and for autoscalers.

    ``status`` returns the models with a range of replicas.
    """

    async def all(request: Request) -> Response:
        return json_response({"models": status()})

    async def one(request: Request) -> Response:
        name = request.path_params["model"]
        for each in status():
            if each.model == name:
                return json_response(each)
        raise NotFound(f"No model '{name}' has replicas = {{ min, max }}")

    return [Route("/api/scale", all), Route("/api/scale/{model:path}", one)]
