"""llama-swap's activity: the rows of ``/api/history`` in its words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from enginehouse import InvalidRequest
from enginehouse_llama_swap.own_pages import OutsideRoute, ask

_MOST: Final = 1000
_UNKNOWN: Final = -1
"""llama-swap's figure for what it does not know."""
_FEWEST_BINS, _MOST_BINS = 5, 20
T = TypeVar("T", int, datetime)
Row = Mapping[str, Any]
_SORT_KEYS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "id": lambda row: row["id"],
    "time": lambda row: row["id"],
    "model": lambda row: row["model"],
    "req_path": lambda row: row["req_path"],
    "resp_status_code": lambda row: row["resp_status_code"],
    "resp_content_type": lambda row: row["resp_content_type"],
    "cached": lambda row: row["tokens"]["cache_tokens"],
    "prompt": lambda row: row["tokens"]["input_tokens"],
    "generated": lambda row: row["tokens"]["output_tokens"],
    "drafted": lambda row: row["tokens"]["draft_tokens"],
    "prompt_speed": lambda row: row["tokens"]["prompt_per_second"],
    "gen_speed": lambda row: row["tokens"]["tokens_per_second"],
    "duration": lambda row: row["duration_ms"],
}


class _Query(msgspec.Struct):
    """llama-swap's parameters. ``start`` and ``end`` are times as in RFC 3339, and count themselves."""

    start: Annotated[datetime, Meta(tz=True)] | None = None
    end: Annotated[datetime, Meta(tz=True)] | None = None
    min_id: Annotated[int, Meta(ge=1)] | None = None
    max_id: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=999)] = 25
    page: Annotated[int, Meta(ge=1)] = 1
    sort: str = "id"
    order: str = "desc"

    def fits(self, row: Row) -> bool:
        """Whether it asks for ``row``."""
        time = datetime.fromisoformat(row["timestamp"])
        within = (self.min_id or 0) <= row["id"] <= (self.max_id or row["id"])
        return within and (self.start is None or self.start <= time) and (self.end is None or time <= self.end)


async def _activity(request: Request) -> Response:
    """A page of the last requests."""
    query = _query(request)
    rows = [row for row in await _rows(request) if query.fits(row)]
    rows.sort(key=_SORT_KEYS.get(query.sort, _SORT_KEYS["id"]), reverse=query.order != "asc")
    first = (query.page - 1) * query.limit
    answer = {"data": rows[first : first + query.limit], "page": query.page, "limit": query.limit, "total": len(rows)}
    return JSONResponse(answer | {"total_pages": math.ceil(len(rows) / query.limit)})


async def _stats(request: Request) -> Response:
    """Totals over the last requests, and how fast they were read and written."""
    tokens = [row["tokens"] for row in await _rows(request)]
    names = {"total_input_tokens": "input_tokens", "total_output_tokens": "output_tokens"}
    names["total_cache_tokens"] = "cache_tokens"
    totals = {total: sum(max(0, each[name]) for each in tokens) for total, name in names.items()}
    histograms = {
        "prompt_histogram": histogram([each["prompt_per_second"] for each in tokens]),
        "gen_histogram": histogram([each["tokens_per_second"] for each in tokens]),
    }
    return JSONResponse({"total_requests": len(tokens), **totals, **histograms})


def histogram(values: Iterable[float]) -> dict[str, Any] | None:
    """How many of the known ``values`` are in each of some bins of equal width, by Sturges's rule; ``None`` if none."""
    known = sorted(value for value in values if value > 0)
    if not known:
        return None
    least, most = known[0], known[-1]
    count = min(_MOST_BINS, max(_FEWEST_BINS, math.ceil(math.log2(len(known))) + 1))
    width = (most - least) / count or 1.0
    bins = [0] * count
    for value in known:
        bins[min(count - 1, int((value - least) / width))] += 1
    shares = {f"p{share}": known[min(len(known) - 1, len(known) * share // 100)] for share in (50, 95, 99)}
    return {"bins": bins, "min": least, "max": most, "binSize": width, **shares}


def activity_entry(row: Row) -> dict[str, Any]:
    """A row of ``/api/history`` as llama-swap has it."""
    figures = {
        "cache_tokens": row["tokens_cached"],
        "draft_tokens": row["tokens_drafted"],
        "draft_acc_tokens": row["tokens_accepted"],
        "input_tokens": row["tokens_in"],
        "output_tokens": row["tokens_out"] if row["tokens_out"] is not None else row["events"] or None,
        "prompt_per_second": row["prefill_rate"],
        "tokens_per_second": row["decode_rate"],
    }
    metadata = {name: row[name] for name in ("backend", "caller", "session", "address", "agent") if row[name]}
    return {
        "id": row["number"],
        "timestamp": datetime.fromtimestamp(row["time"], timezone.utc).isoformat(),
        "model": row["model"] or row["asked"] or "",
        "req_path": row["path"],
        "resp_content_type": "text/event-stream" if row["stream"] else "application/json",
        "resp_status_code": row["status"],
        "tokens": {name: _UNKNOWN if value is None else value for name, value in figures.items()},
        "duration_ms": round(row["duration_ms"]),
        "has_capture": False,
        "error_msg": row["message"],
        "metadata": metadata,
    }


async def _rows(request: Request) -> Sequence[dict[str, Any]]:
    """The last requests, of the models that the query names if it names any."""
    models = request.query_params.getlist("model")
    history = (await ask(request, "GET", "/api/history", limit=_MOST)).json()["requests"]
    entries = map(activity_entry, history)
    return [entry for entry in entries if not models or entry["model"] in models]


def _query(request: Request) -> _Query:
    given = {key: value for key, value in request.query_params.items() if key != "model"}
    try:
        query = msgspec.convert(given, _Query, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error} of the query") from None
    if _is_empty(query.start, query.end) or _is_empty(query.min_id, query.max_id):
        raise InvalidRequest("The query asks for an empty range")
    return query


def _is_empty(first: T | None, last: T | None) -> bool:
    return first is not None and last is not None and first > last


ACTIVITY_ROUTES: Final[list[BaseRoute]] = [
    OutsideRoute("/api/metrics/activity", _activity),
    OutsideRoute("/api/metrics/stats", _stats),
]
