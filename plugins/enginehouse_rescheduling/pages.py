"""``/api/cluster`` and ``/api/migrations``: what rescheduling sees and does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.pages import json_response
from enginehouse_kit.rescheduling import ClusterView
from enginehouse_rescheduling.dispatcher import MigrationRecord


def cluster_routes(
    view: Callable[[], Awaitable[ClusterView]], records: Iterable[MigrationRecord]
) -> Sequence[BaseRoute]:
    """The pages of a cluster's ``view``, and of the last migrations, the oldest of ``records`` first."""

    async def cluster(request: Request) -> Response:
        """The instances with their figures: a VIEW.json for ``enginehouse explain rescheduling``."""
        return json_response(await view())

    async def migrations(request: Request) -> Response:
        return json_response({"migrations": [*records][::-1]})

    return [Route("/api/cluster", cluster), Route("/api/migrations", migrations)]
