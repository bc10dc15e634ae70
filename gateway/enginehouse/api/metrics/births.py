"""The series that are there from the start, at 0: a rate wants a value before the first event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from enginehouse.domain.errors import all_codes
from enginehouse.domain.replica import Candidate, Reason
from enginehouse.relay.context import RelayContext
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.metric_list import MetricInfo

Labels = tuple[str, ...]

_REFUSED_RETRIES = (("retry",), ("continuation",), ("hedge",))
_HEDGES = (("won",), ("lost",), ("failed",))
_CONTINUATIONS = (
    *(("broken", "tokens"), ("broken", "text"), ("broken", "restart")),
    *(("moved", "tokens"), ("moved", "text")),
)
_STATUSES = ("200", "500", "502", "503", "504")
_OF_MODELS = (
    "capability_mismatch",
    "fallback_exhausted",
    "load_failed",
    "no_healthy_backend",
    "overloaded",
    "queue_full",
    "queue_timeout",
    "upstream_error",
    "upstream_timeout",
)
"""The codes of errors that a model, or its engines, may be the cause of."""


def replicas(context: RelayContext) -> list[Candidate]:
    """All replicas, as many as there may be series."""
    found = (each for candidates in context.fleet.snapshot.models.values() for each in candidates)
    return [each for each, _ in zip(found, range(context.counters.max_series), strict=False)]


def requests(context: RelayContext) -> Iterator[Labels]:
    """Of each replica and key: the usual statuses, with the reasons that routes may have."""
    reasons = [Reason.MATCH, Reason.RETRY]
    reasons += [Reason.HEDGE] if context.hedging is not None else []
    found, keys = replicas(context), context.key_names
    for key in keys[: max(1, context.counters.max_series // max(1, len(found)))]:
        for each in found:
            for status in _STATUSES:
                for reason in reasons:
                    yield each.backend, each.model, status, reason.value, key


def of_counters(context: RelayContext) -> Mapping[MetricInfo, Iterable[Labels]]:
    """Those of the counters of what is rare."""
    hedges = _backends(context, *_HEDGES) if context.hedging is not None else ()
    return {
        metrics.REFUSED: _refusals(context),
        metrics.EVICTIONS: ((replica,) for replica in launched(context)),
        metrics.RETRIES: _backends(context),
        metrics.RETRIES_REFUSED: _REFUSED_RETRIES,
        metrics.HEDGES: hedges,
        metrics.STALE: _backends(context),
        metrics.CONTINUATIONS: _backends(context, *_CONTINUATIONS),
    }


def launched(context: RelayContext) -> list[str]:
    """The replicas whose engines the gateway launches, or makes load models."""
    queues = {name for name, queue in context.queues.items() if queue.launches}
    return [each.replica for each in replicas(context) if each.backend in queues]


def _refusals(context: RelayContext) -> Iterator[Labels]:
    """Every code, and for each model those that it may be the cause of."""
    yield from ((code, "") for code in all_codes())
    most = context.counters.max_series // len(_OF_MODELS)
    for model in list(context.fleet.snapshot.models)[:most]:
        yield from ((code, model) for code in _OF_MODELS)


def _backends(context: RelayContext, *values: tuple[str, ...]) -> Iterator[Labels]:
    """Each backend; with each of ``values``, if there are any."""
    for name in context.upstreams:
        yield from ((name, *each) for each in values or ((),))
