"""What has ended at each model of each backend, for plugins that keep figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

from enginehouse.telemetry.counters import Counters, Histogram

_CLIENT_LEFT: Final = 499


class ModelTotals(NamedTuple):
    """The requests that have ended at ``model`` of ``backend`` since the gateway started, and their tokens.

    Both names are empty for requests that reached no engine. ``failed``: those with a status of 500 or more, so neither
    refusals nor clients that left. ``refused``: those with a status of 400 or more that have not failed, but for the
    clients that ``left``. ``first_token``: how many answers began within each bound, in seconds, but not
    within the one before; ``inter_token``: the same of the mean times between tokens.
    """

    backend: str
    model: str
    requests: int
    failed: int
    refused: int
    left: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    first_token: Mapping[float, int]
    inter_token: Mapping[float, int]


def model_totals(counters: Counters) -> Iterator[ModelTotals]:
    """The totals of each model at each backend. Takes milliseconds if there are a thousand."""
    if counters.unrouted:
        refused = counters.unrouted - counters.unrouted_failed
        yield ModelTotals("", "", counters.unrouted, counters.unrouted_failed, refused, 0, 0, 0, 0, {}, {})
    for backend, model, series in counters:
        requests = failed = refused = left = tokens_in = cached = answers = 0
        for counts in series.keys.values():
            for (status, _), count in counts.requests.items():
                requests += count
                failed += count if status >= 500 else 0
                left += count if status == _CLIENT_LEFT else 0
                refused += count if 400 <= status < 500 and status != _CLIENT_LEFT else 0
            tokens_in += counts.input_tokens
            cached += counts.cached_tokens
            answers += counts.from_usage + counts.from_chunks
        times = _by_bound(series.first_token), _by_bound(series.inter_token)
        yield ModelTotals(backend, model, requests, failed, refused, left, tokens_in, cached, answers, *times)


def _by_bound(histogram: Histogram) -> dict[float, int]:
    return dict(zip((*histogram.bounds, inf), histogram.counts, strict=True))
