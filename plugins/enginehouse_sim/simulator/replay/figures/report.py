"""The figures of a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse_sim.simulator.replay.figures.answer import InstanceRecord
from enginehouse_sim.simulator.replay.figures.record import Moment, Record


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
        p50, p90, p99 = (ordered[_place(len(ordered), share)] for share in (0.5, 0.9, 0.99))
        mean = sum(ordered) / len(ordered)
        return cls(mean=_ms(mean), p50=_ms(p50), p90=_ms(p90), p99=_ms(p99), max=_ms(ordered[-1]))

    @classmethod
    def of_counts(cls, microseconds: Mapping[int, int]) -> Distribution:
        """The distribution of durations: counts by microseconds."""
        if not microseconds:
            return cls.of(())
        ordered = sorted(microseconds.items())
        total = sum(microseconds.values())
        places = iter([_place(total, share) for share in (0.5, 0.9, 0.99)])
        found: list[float] = []
        place, passed = next(places), 0
        for duration, count in ordered:
            passed += count
            while place < passed:
                found.append(duration / 1000)
                place = next(places, total)
        mean = sum(duration * count for duration, count in ordered) / total
        p50, p90, p99 = found
        return cls(mean=round(mean / 1000, 3), p50=p50, p90=p90, p99=p99, max=ordered[-1][0] / 1000)


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one engine. ``busy``: the share of the replay in which it computed."""

    name: str
    requests: int
    input_tokens: int
    output_tokens: int
    cache_hit_ratio: float
    preemptions: int
    steps: int
    mean_batch: float
    busy: float
    peak_kv_use: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one replay.

    ``requests``: the answered requests, whose tokens the token figures count. ``cached_tokens``: tokens of their
    prompts that needed no computing. ``rejected``: the refused requests, which ``rejections`` counts by error code.
    ``slo_attainment``: the share of all requests that were answered within the objectives; ``None`` without objectives.
    ``slo_shares``: the share within each single objective.
    ``imbalance``: the requests at the busiest engine over the mean of all engines. ``migrations``: the moves of answers
    under way; ``migration_gap_ms``: the gaps between two tokens in which they moved. ``failed_migrations``: commands
    that moved none of the selected requests. ``empty_migrations``: those that found none to move. ``retried``: how
    often requests were sent again. ``continued``: how often streams went on elsewhere after a break. ``hedged``: second
    replicas that were asked. ``broken``: answers that had begun and did not become whole; ``rejections`` counts them
    too. ``speed``: virtual seconds in each real one.
    """

    requests: int
    rejected: int
    rejections: dict[str, int]
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_hit_ratio: float
    preemptions: int
    swaps: int
    migrations: int
    failed_migrations: int
    empty_migrations: int
    retried: int
    continued: int
    hedged: int
    broken: int
    slo_attainment: float | None
    slo_shares: dict[str, float]
    imbalance: float
    steps: int
    mean_batch: float
    virtual_seconds: float
    requests_per_second: float
    output_tokens_per_second: float
    ttft_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution
    latency_ms: Distribution
    migration_gap_ms: Distribution
    real_seconds: float
    speed: float
    per_instance: list[EngineReport]


class VariantReport(Report, frozen=True, kw_only=True):
    """The figures of one variant of the configuration. ``name``: the keys that it sets, with their values."""

    name: str


def report(record: Record) -> Report:
    """The figures of a complete ``record``."""
    duration, rejected = record.ended, sum(record.rejected.values())
    instances = record.instances
    steps = sum(instance.steps for instance in instances)
    return Report(
        requests=record.requests,
        rejected=rejected,
        rejections=dict(record.rejected),
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cached_tokens=record.cached_tokens,
        cache_hit_ratio=_round(_share(record.cached_tokens, record.input_tokens)),
        preemptions=sum(instance.preemptions for instance in instances),
        swaps=record.swaps,
        migrations=len(record.move_gaps),
        failed_migrations=record.failed_migrations,
        empty_migrations=record.empty_migrations,
        retried=record.retried,
        continued=record.continued,
        hedged=record.hedged,
        broken=record.broken,
        slo_attainment=None if record.slo is None else _round(_share(record.attained, record.requests + rejected)),
        slo_shares=_slo_shares(record),
        imbalance=_imbalance(record.moments.samples, len(instances)),
        steps=steps,
        mean_batch=_round(_share(sum(instance.batches for instance in instances), steps)),
        virtual_seconds=_round(duration),
        requests_per_second=_round(_share(record.requests, duration)),
        output_tokens_per_second=_round(_share(record.output_tokens, duration)),
        ttft_ms=Distribution.of(record.times_to_first),
        itl_ms=Distribution.of_counts(record.gaps),
        tpot_ms=Distribution.of(record.means),
        latency_ms=Distribution.of(record.durations),
        migration_gap_ms=Distribution.of(record.move_gaps),
        real_seconds=_round(record.real_seconds),
        speed=_round(_share(duration, record.real_seconds)),
        per_instance=[_instance(instance, duration) for instance in instances],
    )


def _slo_shares(record: Record) -> dict[str, float]:
    """For each objective, the share of all requests within it. An answer of one token has no gap, so it is within."""
    slo = record.slo
    if slo is None:
        return {}
    total, shares = record.requests + sum(record.rejected.values()), {}
    figures = {"ttft": record.times_to_first, "tpot": record.means, "latency": record.durations}
    for name, seconds in figures.items():
        limit = getattr(slo, name)
        if limit is not None:
            missed = sum(value > limit for value in seconds)
            shares[name] = _round(_share(record.requests - missed, total))
    return shares


def _instance(instance: InstanceRecord, duration: float) -> EngineReport:
    return EngineReport(
        name=instance.name,
        requests=instance.requests,
        input_tokens=instance.input_tokens,
        output_tokens=instance.output_tokens,
        cache_hit_ratio=_round(_share(instance.cached_tokens, instance.input_tokens)),
        preemptions=instance.preemptions,
        steps=instance.steps,
        mean_batch=_round(_share(instance.batches, instance.steps)),
        busy=_round(_share(instance.busy, duration)),
        peak_kv_use=_round(instance.peak_kv_use),
    )


def _imbalance(samples: Sequence[Moment], engines: int) -> float:
    """The busiest engine's requests over the mean engine's. A moment weighs as much as it has requests."""
    live = sum(moment.running + moment.waiting for moment in samples)
    return _round(_share(engines * sum(moment.busiest for moment in samples), live)) or 1.0


def _place(count: int, share: float) -> int:
    """The index of the percentile ``share``, by the nearest-rank method."""
    return max(0, -(-int(share * 10000) * count // 10000) - 1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _round(value: float) -> float:
    return round(value, 3)
