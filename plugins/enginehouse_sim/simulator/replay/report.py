"""The figures of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse_sim.simulator.replay.record import Record


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of a figure, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Distribution:
        """The distribution of durations in seconds; all zero if there are none."""
        if not seconds:
            return cls(mean=0, p50=0, p90=0, p99=0, max=0)
        ordered = sorted(seconds)
        p50, p90, p99 = (_quantile(ordered, share) for share in (0.5, 0.9, 0.99))
        mean = sum(ordered) / len(ordered)
        return cls(mean=_ms(mean), p50=_ms(p50), p90=_ms(p90), p99=_ms(p99), max=_ms(ordered[-1]))


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """The real cost of steps with ``batch_from`` to ``batch_to`` requests, in microseconds."""

    batch_from: int
    batch_to: int
    steps: int
    mean_us: float
    mean_us_per_request: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures; lengths in tokens.

    ``ttft_ms``: time to first token. ``itl_ms``: each gap between two outputs of a request. ``tpot_ms``: the mean gap
    of each request, ``(latency - ttft) / (tokens - 1)``, which other tools report; it hides stalls, which ``itl_ms``
    shows. ``speed``: virtual seconds per real second of the steps.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_hit_ratio: float
    preemptions: int
    steps: int
    mean_batch: float
    virtual_seconds: float
    requests_per_second: float
    output_tokens_per_second: float
    ttft_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution
    latency_ms: Distribution
    real_seconds: float
    speed: float
    step_costs: Sequence[StepCost]


def report(record: Record) -> Report:
    """The figures of ``record``."""
    requests, duration, real = record.requests, record.ended, sum(record.step_wall)
    input_tokens = sum(request.input_length for request in requests)
    output_tokens = sum(request.output_tokens for request in requests)
    cached_tokens = sum(request.cached_tokens for request in requests)
    return Report(
        requests=len(requests),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cache_hit_ratio=_round(_share(cached_tokens, input_tokens)),
        preemptions=record.preemptions,
        steps=len(record.batches),
        mean_batch=_round(_share(sum(record.batches), len(record.batches))),
        virtual_seconds=_round(duration),
        requests_per_second=_round(_share(len(requests), duration)),
        output_tokens_per_second=_round(_share(output_tokens, duration)),
        ttft_ms=Distribution.of(record.times_to_first_token()),
        itl_ms=Distribution.of(record.gaps),
        tpot_ms=Distribution.of(
            [
                (request.last_token - first) / (request.output_tokens - 1)
                for request, first in _answered(record)
                if request.output_tokens > 1
            ]
        ),
        latency_ms=Distribution.of([request.last_token - request.arrival for request, _ in _answered(record)]),
        real_seconds=_round(real),
        speed=_round(_share(duration, real)),
        step_costs=_step_costs(record),
    )


def _answered(record: Record) -> list[tuple[Any, float]]:
    return [(request, request.first_token) for request in record.requests if request.first_token is not None]


def _step_costs(record: Record) -> list[StepCost]:
    """Steps grouped by their requests: 1, 2 to 3, 4 to 7, and so on."""
    groups: dict[int, list[int]] = {}
    for index, batch in enumerate(record.batches):
        groups.setdefault(batch.bit_length(), []).append(index)
    return [
        _step_cost(record, bits, indices)
        for bits, indices in sorted(groups.items())
        if bits  # without the steps in which only time passed
    ]


def _step_cost(record: Record, bits: int, indices: Sequence[int]) -> StepCost:
    wall = sum(record.step_wall[index] for index in indices)
    requests = sum(record.batches[index] for index in indices)
    return StepCost(
        batch_from=1 << bits - 1,
        batch_to=(1 << bits) - 1,
        steps=len(indices),
        mean_us=round(wall / len(indices) * 1e6, 1),
        mean_us_per_request=round(wall / requests * 1e6, 2),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value with at least ``share`` of all values not above it."""
    return ordered[max(0, -(-int(share * 10000) * len(ordered) // 10000) - 1)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _round(value: float) -> float:
    return round(value, 3)
