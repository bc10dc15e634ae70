"""``GET /api/series``: figures over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.config.units import parse_duration
from enginehouse.domain.errors import InvalidRequest
from enginehouse.telemetry.series.reading import By, SeriesReader


class _SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: seconds since the Unix epoch, or how long ago, such as ``15m``."""

    metric: str
    by: By = ""
    since: str = "15m"
    step: int | None = None


class SeriesPage:
    """Shows operators what ``reader`` reads. ``epoch`` tells the time of day in seconds."""

    def __init__(self, reader: SeriesReader, epoch: Callable[[], float]) -> None:
        self._reader = reader
        self._epoch = epoch

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/series", self.series)]

    async def series(self, request: Request) -> Response:
        """The values of one metric, of the whole gateway or by model, backend or GPU."""
        try:
            query = msgspec.convert(dict(request.query_params), _SeriesQuery, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"{error} of the query; metric is a name, step a number of seconds") from None
        return json_response(self._reader.read(query.metric, query.by, self._since(query.since), query.step))

    def _since(self, text: str) -> float:
        try:
            return float(text) if text.replace(".", "", 1).isdecimal() else self._epoch() - parse_duration(text)
        except ValueError:
            problem = f"since is a time in seconds since the Unix epoch, or a duration such as 15m, not '{text}'"
            raise InvalidRequest(problem, param="since") from None
