"""Figures of each model over its last requests: how many succeed, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from enginehouse.domain.request_record import RequestRecord

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


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
