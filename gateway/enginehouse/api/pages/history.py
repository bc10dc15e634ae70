"""``GET /api/history``: the last requests. ``GET /api/history/models``: the figures of models over these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.api.pages.reading import read_query
from enginehouse.domain.request_record import RequestRecord
from enginehouse.telemetry.activity import MOST, Activity, EndedRequest, activity_row

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_REMEDY = (
    f"limit is a number up to {MOST}, status one such as 404 or 5xx, after the number of a row, model and key are names"
)


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
        query, sessions = read_query(request.query_params, _HistoryQuery, _REMEDY), self._session_headers()
        found = filter(query.fits, self._activity.newest_first())
        rows = [activity_row(each, sessions) for each in islice(found, query.limit)]
        return json_response({"requests": rows, "count": self._activity.count})

    async def models(self, request: Request) -> Response:
        """How many requests of each model succeeded, and how long these took."""
        return json_response({"models": model_figures(each.record for each in self._activity.newest_first())})


def model_figures(records: Iterable[RequestRecord]) -> list[dict[str, Any]]:
    """A row for each model that ``records`` name, by name. A request of an unknown model counts for none."""
    by_model: dict[str, list[RequestRecord]] = {}
    for record in records:
        if record.model is not None:
            by_model.setdefault(record.model, []).append(record)
    return [_row(model, of_model) for model, of_model in sorted(by_model.items())]


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest of the ``ordered`` values that at least this ``share`` of them do not exceed (nearest rank)."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None


def _row(model: str, records: Sequence[RequestRecord]) -> dict[str, Any]:
    served = [record for record in records if record.status < 400 and record.code is None]
    durations = sorted((record.ended - record.arrived) * 1000 for record in served)
    first_bytes = sorted((each.first_byte - each.arrived) * 1000 for each in served if each.first_byte is not None)
    return {
        "model": model,
        "requests": len(records),
        "success": round(len(served) / len(records), 4),
        "tokens_in": sum(record.tokens_in or 0 for record in records),
        "tokens_cached": sum(record.tokens_cached or 0 for record in records),
        "tokens_out": sum(record.tokens_out or 0 for record in records),
        **{f"duration_ms_{name}": _rounded(quantile(durations, share)) for name, share in _SHARES.items()},
        **{f"first_byte_ms_{name}": _rounded(quantile(first_bytes, share)) for name, share in _SHARES.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
