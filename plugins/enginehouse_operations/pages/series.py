"""``GET /api/series``: figures over time."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import InvalidRequest, parse_duration
from enginehouse_operations.pages.reading import facts_of, json_response, read_query


class SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: seconds since the Unix epoch, or how long ago, such as ``15m``."""

    metric: str
    by: Literal["", "model", "backend", "gpu"] = ""
    since: str = "15m"
    step: int | None = None


async def _series(request: Request) -> Response:
    """The values of one metric, of the whole gateway or by model, backend or GPU."""
    facts = facts_of(request)
    query = read_query(request.query_params, SeriesQuery, "metric is a name, step a number of seconds")
    since = _moment(query.since, facts.epoch())
    return json_response(facts.series.read(query.metric, query.by, since, query.step))


def _moment(since: str, now: float) -> float:
    try:
        return float(since) if since.replace(".", "", 1).isdecimal() else now - parse_duration(since)
    except ValueError:
        problem = f"since is a time in seconds since the Unix epoch, or a duration such as 15m, not '{since}'"
        raise InvalidRequest(problem, param="since") from None


SERIES_ROUTES = [Route("/api/series", _series)]
