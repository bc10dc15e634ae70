"""``GET /api/series``: figures over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest, parse_duration
from enginehouse_operations.pages.reading import facts_of, json_response, read_query
from enginehouse_operations.series.reading import read_series
from enginehouse_operations.series.series_store import SeriesStore


class SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: seconds since the Unix epoch, or how long ago, such as ``15m``."""

    metric: str
    by: Literal["", "model", "backend", "gpu"] = ""
    since: str = "15m"
    step: int | None = None


class SeriesPage:
    """Shows what ``store`` keeps."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/series", self.answer)]

    async def answer(self, request: Request) -> Response:
        """The values of one metric, of the whole gateway or by model, backend or GPU."""
        query = read_query(request.query_params, SeriesQuery, "metric is a name, step a number of seconds")
        since = _moment(query.since, facts_of(request).epoch())
        return json_response(read_series(self._store, query.metric, query.by, since, query.step))


def _moment(since: str, now: float) -> float:
    try:
        return float(since) if since.replace(".", "", 1).isdecimal() else now - parse_duration(since)
    except ValueError:
        problem = f"since is a time in seconds since the Unix epoch, or a duration such as 15m, not '{since}'"
        raise InvalidRequest(problem, param="since") from None
