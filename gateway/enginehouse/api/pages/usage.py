"""``GET /api/usage``, ``/v1/usage`` and ``/api/audit``: what callers have used, and what operators have done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.doors.admission import Admission
from enginehouse.api.errors import json_response
from enginehouse.api.pages.reading import read_limit
from enginehouse.config.auth import moment
from enginehouse.config.units import parse_duration
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.usage import AuditEntry, UsageRow
from enginehouse.telemetry.usage_meter import HOUR_S

FIELDS = ("key", "model", "user", "day")
_MOST_ENTRIES = 10_000


class KeptUsage(Protocol):
    """What is kept of usage and of operators' acts; times are seconds of the epoch."""

    def usage(self, since: float, until: float) -> Awaitable[Sequence[UsageRow]]: ...

    def audit(self, since: float, most: int) -> Awaitable[Sequence[AuditEntry]]: ...


class UsagePages:
    """Answers from what is ``kept``. ``epoch`` tells the time of day in seconds."""

    def __init__(self, kept: KeptUsage, admission: Callable[[], Admission], epoch: Callable[[], float]) -> None:
        self._kept = kept
        self._admission = admission
        self._epoch = epoch

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Those of operators."""
        return [Route("/api/usage", self.everyone), Route("/api/audit", self.audit)]

    @property
    def own(self) -> BaseRoute:
        """The page of any key."""
        return Route("/v1/usage", self.caller)

    async def everyone(self, request: Request) -> Response:
        """The usage of all callers: ``?by=key,model,user,day&since=&until=``."""
        return json_response(summed(await self._rows(request), _fields(request)))

    async def caller(self, request: Request) -> Response:
        """The usage of the caller's own key."""
        admission = self._admission()
        caller = admission.keyring.caller(request.headers.raw)
        if caller is None:
            admission.cross_origin.check(request.headers.raw)
        name = caller.name if caller is not None else ""
        rows = [row for row in await self._rows(request) if row.key == name]
        return json_response(summed(rows, _fields(request)))

    async def audit(self, request: Request) -> Response:
        """What operators have done, the newest first: ``?since=&limit=``."""
        most = read_limit(request, _MOST_ENTRIES)
        since = read_time(request.query_params.get("since", "0"), self._epoch())
        return json_response({"entries": await self._kept.audit(since, most)})

    async def _rows(self, request: Request) -> Sequence[UsageRow]:
        query, now = request.query_params, self._epoch()
        since = read_time(query.get("since", "0"), now)
        until = read_time(query["until"], now) if "until" in query else now + HOUR_S
        return await self._kept.usage(since // HOUR_S * HOUR_S, until)


def summed(rows: Sequence[UsageRow], by: Sequence[str]) -> dict[str, Any]:
    """The sums of ``rows`` by the fields ``by``, the days in UTC, and the sum of all."""
    sums: dict[tuple[str | None, ...], UsageRow] = {}
    total = UsageRow()
    for row in rows:
        names = tuple(_value(row, field) if field in by else None for field in FIELDS)
        sums.setdefault(names, UsageRow()).add(row)
        total.add(row)
    order = sorted(sums, key=lambda names: tuple(name or "" for name in (names[3], *names[:3])))
    figures = [{**dict(zip(FIELDS, names, strict=True)), **_figures(sums[names])} for names in order]
    return {"rows": figures, "total": _figures(total)}


def _value(row: UsageRow, field: str) -> str:
    if field == "day":
        return datetime.fromtimestamp(row.hour or 0, timezone.utc).strftime("%Y-%m-%d")
    value = getattr(row, field)
    return str(value or "")


def _figures(row: UsageRow) -> dict[str, float]:
    return {
        "requests": row.requests,
        "failed": row.failed,
        "tokens_in": row.tokens_in,
        "tokens_cached": row.tokens_cached,
        "tokens_out": row.tokens_out,
        "seconds": round(row.seconds, 3),
        "cost": round(row.cost, 9),
    }


def _fields(request: Request) -> Sequence[str]:
    by = [name.strip() for name in request.query_params.get("by", "key").split(",") if name.strip()]
    for name in by:
        if name not in FIELDS:
            raise InvalidRequest(f"'by' has '{name}': use {', '.join(FIELDS)}", param="by")
    return by


def read_time(text: str, now: float) -> float:
    """A moment in seconds since the epoch: a date or time in ISO 8601, such seconds, or how long ago, as ``7d``.

    Raises ``InvalidRequest``.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return moment(text)
    except ValueError:
        pass
    try:
        return now - parse_duration(text)
    except ValueError:
        raise InvalidRequest(
            f"'{text}' is no time: write 7d, 2026-01-31 or seconds since 1970", param="since"
        ) from None
