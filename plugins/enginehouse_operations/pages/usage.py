"""``GET /api/usage``, ``/v1/usage``, ``/v1/limits`` and ``/api/audit``: what callers use, what operators did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import InvalidRequest
from enginehouse.callers import UsageRow
from enginehouse.pages import json_response
from enginehouse_operations.pages.reading import facts_of, read_limit, read_time

FIELDS = ("key", "model", "user", "day")
_MOST_ENTRIES = 10_000
_MOST_ROWS = 20_000
_HOUR_S = 3600


async def _everyone(request: Request) -> Response:
    """The usage of all callers: ``?by=key,model,user,day&since=&until=``."""
    return json_response(await _sums(request, None))


async def _own(request: Request) -> Response:
    """The usage of the caller's own key."""
    return json_response(await _sums(request, facts_of(request).caller(request.headers.raw)))


async def _own_limits(request: Request) -> Response:
    """What is left of the limits of the caller's own key."""
    facts = facts_of(request)
    return json_response({"limits": facts.limits(facts.caller(request.headers.raw))})


async def _audit(request: Request) -> Response:
    """What operators have done, the newest first: ``?since=&limit=``."""
    facts, most = facts_of(request), read_limit(request, _MOST_ENTRIES)
    since = read_time(request.query_params.get("since") or "0", facts.epoch())
    return json_response({"entries": await facts.audit(since, most)})


async def _sums(request: Request, key: str | None) -> dict[str, Any]:
    """The sums that a request asks for, the days in UTC, and the sum of all. ``key``: only of what this one used."""
    facts, query, by = facts_of(request), request.query_params, _fields(request)
    now = facts.epoch()
    since = read_time(query.get("since") or "0", now)
    until = read_time(query["until"], now) if query.get("until") else now + _HOUR_S
    rows = await facts.usage(since // _HOUR_S * _HOUR_S, until, by, key, _MOST_ROWS + 1)
    if len(rows) > _MOST_ROWS:
        raise InvalidRequest(
            f"The answer has more than {_MOST_ROWS} rows: ask for a shorter time ('since', 'until') or fewer fields",
            param="by",
        )
    total = UsageRow()
    for row in rows:
        total.add(row)
    return {"rows": [_row(row, by) for row in sorted(rows, key=_place)], "total": _figures(total)}


def _place(row: UsageRow) -> tuple[int, str, str, str]:
    return row.hour or 0, row.key or "", row.model or "", row.user or ""


def _row(row: UsageRow, by: Sequence[str]) -> dict[str, Any]:
    day = datetime.fromtimestamp(row.hour or 0, timezone.utc).strftime("%Y-%m-%d")
    names = {"key": row.key or "", "model": row.model or "", "user": row.user or "", "day": day}
    return {**{name: names[name] if name in by else None for name in FIELDS}, **_figures(row)}


def _figures(row: UsageRow) -> dict[str, float]:
    return {
        "requests": row.requests,
        "failed": row.failed,
        "tokens_in": row.tokens_in,
        "tokens_cached": row.tokens_cached,
        "tokens_out": row.tokens_out,
        "seconds": round(row.seconds, 3),
        "cost": round(row.cost, 9),
        **({"wh": round(row.wh, 6)} if row.wh else {}),
    }


def _fields(request: Request) -> Sequence[str]:
    """The fields by which to sum up, each once."""
    by = dict.fromkeys(name.strip() for name in request.query_params.get("by", "key").split(",") if name.strip())
    for name in by:
        if name not in FIELDS:
            raise InvalidRequest(f"'by' has '{name[:50]}': use {', '.join(FIELDS)}", param="by")
    return tuple(by)


USAGE_ROUTES = [Route("/api/usage", _everyone), Route("/api/audit", _audit)]
"""For operators."""
OWN_ROUTES = [Route("/v1/usage", _own), Route("/v1/limits", _own_limits)]
"""For every key."""
