"""``GET /api/history``: the last requests. ``GET /api/history/models``: the figures of models over these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import Headers, RequestRecord
from enginehouse.pages import EndedRequest, PageFacts, json_response
from enginehouse.records import EngineTimings
from enginehouse_operations.pages.reading import facts_of, read_query

_MOST = 1000
"""The gateway remembers no more requests."""
_REMEDY = (
    f"limit is a number up to {_MOST}, status one such as 404 or 5xx, after the number of a row, "
    "model and key are names"
)
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NO_TIMINGS = EngineTimings()


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``after``: a number of an earlier row; only later requests are shown. ``status``: as ``404`` or ``5xx``."""

    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100
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


async def _requests(request: Request) -> Response:
    """The requests that the query asks for, newest first."""
    facts, query = facts_of(request), read_query(request.query_params, HistoryQuery, _REMEDY)
    found, sessions = filter(query.fits, facts.ended()), facts.session_headers()
    rows = [request_row(each, sessions) | {"cost": _cost(each.record, facts)} for each in islice(found, query.limit)]
    return json_response({"requests": rows, "count": facts.ended_count()})


async def _models(request: Request) -> Response:
    """How many requests of each model succeeded, and how long these took."""
    return json_response({"models": model_figures(each.record for each in facts_of(request).ended())})


def request_row(ended: EndedRequest, session_headers: Sequence[str]) -> dict[str, Any]:
    """``ended`` as ``GET /api/history`` shows it: its record, and figures that follow from it.

    ``session_headers``: those that name the session of a request, the first one that it has. No other header but
    ``user-agent`` is shown.
    """
    record = ended.record
    row: dict[str, Any] = msgspec.to_builtins(record)
    del row["timings"]
    return row | {
        "number": ended.number,
        "time": round(ended.time, 3),
        "address": ended.address,
        "agent": _header(ended.headers, "user-agent"),
        "session": next(filter(None, (_header(ended.headers, name) for name in session_headers)), None),
        "retries": max(0, len(record.attempts) - 1),
        **_figures(record),
    }


def _cost(record: RequestRecord, facts: PageFacts) -> float | None:
    """What a request cost by its tokens; ``None`` if nobody counted these."""
    tokens_in, tokens_out = record.tokens_in, record.tokens_out
    if tokens_in is None or tokens_out is None:
        return None
    return round(facts.cost(record.model or "", tokens_in, record.tokens_cached or 0, tokens_out), 9)


def _figures(record: RequestRecord) -> dict[str, Any]:
    """Times in milliseconds, rates in tokens a second: the engine's own, or else as the gateway saw them."""
    timings = record.timings or _NO_TIMINGS
    computed = None if record.tokens_in is None else record.tokens_in - (record.tokens_cached or 0)
    written = record.tokens_out if record.tokens_out is not None else record.events  # one event has one token, mostly
    return {
        "duration_ms": _milliseconds(record.arrived, record.ended),
        "wait_ms": _milliseconds(record.arrived, record.sent),
        "ttft_ms": _milliseconds(record.arrived, record.first_byte) if record.stream else None,
        "prefill_rate": timings.prefill_rate or _rate(computed, record.sent, record.first_byte, record.stream),
        "decode_rate": timings.decode_rate or _rate(written - 1, record.first_byte, record.ended, record.stream),
        "tokens_drafted": timings.drafted,
        "tokens_accepted": timings.accepted,
    }


def _milliseconds(began: float | None, ended: float | None) -> float | None:
    return None if began is None or ended is None else round((ended - began) * 1000, 1)


def _rate(tokens: int | None, began: float | None, ended: float | None, known: bool) -> float | None:
    """Tokens a second; ``None`` if the times of these are not ``known``, as those of an answer that came whole."""
    if not known or tokens is None or tokens <= 0 or began is None or ended is None or ended <= began:
        return None
    return round(tokens / (ended - began), 2)


def _header(headers: Headers, name: str) -> str | None:
    wanted = name.lower().encode()
    return next((value.decode(errors="replace") for each, value in headers if each == wanted), None)


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


HISTORY_ROUTES = [Route("/api/history", _requests), Route("/api/history/models", _models)]
