"""``GET /api/series``: figures over time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.api.pages.reading import read_query
from enginehouse.config.units import parse_duration
from enginehouse.domain.errors import InvalidRequest
from enginehouse.telemetry.series.reading import By, SeriesReader


class _SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: seconds since the Unix epoch, or how long ago, such as ``15m``."""

    metric: str
    by: By = ""
    since: str = "15m"
    step: int | None = None


def series_page(reader: SeriesReader, epoch: Callable[[], float]) -> BaseRoute:
    """What ``reader`` reads, for operators. ``epoch`` tells the time of day in seconds."""

    async def series(request: Request) -> Response:
        """The values of one metric, of the whole gateway or by model, backend or GPU."""
        query = read_query(request.query_params, _SeriesQuery, "metric is a name, step a number of seconds")
        since = _moment(query.since, epoch())
        return json_response(reader.read(query.metric, query.by, since, query.step))

    return Route("/api/series", series)


def _moment(since: str, now: float) -> float:
    try:
        return float(since) if since.replace(".", "", 1).isdecimal() else now - parse_duration(since)
    except ValueError:
        problem = f"since is a time in seconds since the Unix epoch, or a duration such as 15m, not '{since}'"
        raise InvalidRequest(problem, param="since") from None
