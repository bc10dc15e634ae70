"""``/api/cluster`` and ``/api/migrations``: the view and the moves of rescheduling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response


class ClusterPages:
    """``view`` makes a view of the cluster, ``records`` returns the last migrations, oldest first."""

    def __init__(self, view: Callable[[], Awaitable[Any]], records: Callable[[], Iterable[Any]]) -> None:
        self._view = view
        self._records = records

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/cluster", self.cluster), Route("/api/migrations", self.migrations)]

    async def cluster(self, request: Request) -> Response:
        """The instances with their figures: a VIEW.json for ``enginehouse explain rescheduling``."""
        return json_response(await self._view())

    async def migrations(self, request: Request) -> Response:
        """The last migrations, newest first."""
        return json_response({"migrations": list(self._records())[::-1]})
