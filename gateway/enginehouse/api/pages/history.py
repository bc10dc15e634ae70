"""``GET /api/history``: the last requests. ``GET /api/history/models``: the figures of models over these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.ticket import Phase
from enginehouse.telemetry.activity import MOST, Activity, EndedRequest, activity_row
from enginehouse.telemetry.model_figures import model_figures


class _HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``after``: a number of an earlier row; only later requests are shown. ``status``: as ``404`` or ``5xx``."""

    limit: Annotated[int, Meta(ge=1, le=MOST)] = 100
    model: str | None = None
    key: str | None = None
    status: Annotated[str, Meta(pattern=r"^[1-5](\d\d|xx)$")] | None = None
    after: Annotated[int, Meta(ge=0)] = 0

    def fits(self, ended: EndedRequest) -> bool:
        """Whether it asks for that request."""
        record = ended.record
        return (
            ended.number > self.after
            and self.model in (None, record.model, record.asked)
            and self.key in (None, record.caller)
            and (self.status is None or str(record.status).startswith(self.status.removesuffix("xx")))
        )


class History:
    """Shows operators what is remembered of requests. ``session_headers``: those that name a session, as configured."""

    def __init__(self, activity: Activity, session_headers: Callable[[], Sequence[str]]) -> None:
        self._activity = activity
        self._session_headers = session_headers

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/history", self.requests), Route("/api/history/models", self.models)]

    async def requests(self, request: Request) -> Response:
        """The requests that the query asks for, newest first."""
        query, sessions = _query(request), self._session_headers()
        found = filter(query.fits, self._activity.newest_first())
        rows = [activity_row(each, sessions) for each in islice(found, query.limit)]
        return json_response({"requests": rows, "count": self._activity.count})

    def row(self, request_id: str) -> dict[str, Any] | None:
        """The last request with that id, as far as it is remembered, in its last phase."""
        ended = next((each for each in self._activity.newest_first() if each.record.id == request_id), None)
        if ended is None:
            return None
        phase = Phase.FAILED if ended.record.code else Phase.DONE
        return activity_row(ended, self._session_headers()) | {"phase": phase}

    async def models(self, request: Request) -> Response:
        """How many requests of each model succeeded, and how long these took."""
        return json_response({"models": model_figures(each.record for each in self._activity.newest_first())})


def _query(request: Request) -> _HistoryQuery:
    try:
        return msgspec.convert(dict(request.query_params), _HistoryQuery, strict=False)
    except msgspec.ValidationError as error:
        most = f"limit is a number up to {MOST}, status one such as 404 or 5xx, after the number of a row"
        raise InvalidRequest(f"{error} of the query; {most}, model and key are names") from None
