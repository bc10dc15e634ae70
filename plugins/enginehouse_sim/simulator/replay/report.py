"""The record of a replay in little memory, its figures, and tables of them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from enginehouse import ConfigError, parse_duration
from enginehouse_sim.simulator.replay.answer import AnswerRecord


class Slo(msgspec.Struct, frozen=True):
    """The most seconds to the first token, between tokens on average, and to the last; ``None``: no limit."""

    ttft: float | None = None
    tpot: float | None = None
    latency: float | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read objectives such as ``ttft=2s,tpot=50ms``. Raises ``ConfigError``."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            if name not in cls.__struct_fields__:
                known = ", ".join(cls.__struct_fields__)
                raise ConfigError(f"has no figure {name!r}", key="--slo", remedy=f"it takes {known}: ttft=2s,tpot=50ms")
            try:
                limits[name] = parse_duration(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}", key="--slo") from None
        return cls(**limits)

    def is_met(self, ttft: float, tpot: float, latency: float) -> bool:
        return (
            (self.ttft is None or ttft <= self.ttft)
            and (self.tpot is None or tpot <= self.tpot)
            and (self.latency is None or latency <= self.latency)
        )


class InstanceRecord(msgspec.Struct):
    """Counts of one engine. ``batches``: the sum of its batch sizes. ``busy``: its seconds of computing.

    ``peak_kv_use``: the largest sampled share of blocks in use, 0 to 1.
    """

    name: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    batches: int = 0
    busy: float = 0.0
    peak_kv_use: float = 0.0


_SAMPLES = 600


class Moment(NamedTuple):
    """The number of requests at all engines at one time, and the most at one of them."""

    requests: int
    busiest: int


class Moments:
    """Samples over time. At ``_SAMPLES`` of them, every second one goes and the interval doubles."""

    def __init__(self) -> None:
        self.samples: list[Moment] = []
        self.due = 0.0
        self._every = 0.05

    def add(self, now: float, moment: Moment) -> None:
        self.samples.append(moment)
        if len(self.samples) >= _SAMPLES:
            self._every *= 2
            del self.samples[1::2]
        self.due = now + self._every


class Counts(msgspec.Struct, kw_only=True):
    """The counts of a replay.

    ``requests``: the answered requests, whose tokens the token figures count. ``cached_tokens``: tokens of their
    prompts that needed no computing. ``failed_migrations``: commands that moved none of the selected requests.
    ``empty_migrations``: those that found none to move. ``retried``: how often requests were sent again.
    ``continued``: how often streams went on elsewhere after a break. ``hedged``: second replicas that were asked.
    ``broken``: answers that had begun and did not become whole.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    swaps: int = 0
    failed_migrations: int = 0
    empty_migrations: int = 0
    retried: int = 0
    continued: int = 0
    hedged: int = 0
    broken: int = 0


def _seconds() -> array[float]:
    return array("d")


class Record(Counts, kw_only=True):
    """The requests, steps and engines of a replay.

    ``times_to_first``, ``means`` (the mean gap between tokens) and ``durations`` have a number of seconds for each
    answered request; a request with one token has no mean. ``gaps`` counts the gaps between two outputs of a request,
    by microseconds. ``move_gaps``: the gaps in which requests moved, in seconds. ``rejected``: the number of refused
    requests, by error code. ``attained``: the number of requests within ``slo``. ``ended``: the virtual seconds, and
    ``real_seconds`` the real ones, that the replay took.
    """

    slo: Slo | None = None
    instances: list[InstanceRecord] = msgspec.field(default_factory=list)
    rejected: Counter[str] = msgspec.field(default_factory=Counter)
    attained: int = 0
    times_to_first: array[float] = msgspec.field(default_factory=_seconds)
    means: array[float] = msgspec.field(default_factory=_seconds)
    durations: array[float] = msgspec.field(default_factory=_seconds)
    gaps: dict[int, int] = msgspec.field(default_factory=dict)
    moments: Moments = msgspec.field(default_factory=Moments)
    move_gaps: array[float] = msgspec.field(default_factory=_seconds)
    ended: float = 0.0
    real_seconds: float = 0.0

    def reject(self, code: str) -> None:
        self.rejected[code] += 1

    def finish(self, request: AnswerRecord) -> None:
        first, duration = request.first_token - request.arrival, request.last_token - request.arrival
        self.requests += 1
        self.input_tokens += request.input_length
        self.cached_tokens += request.cached_tokens
        self.output_tokens += request.output_tokens
        self.times_to_first.append(first)
        self.durations.append(duration)
        mean = 0.0
        if request.output_tokens > 1:
            mean = (request.last_token - request.first_token) / (request.output_tokens - 1)
            self.means.append(mean)
        if self.slo is not None and self.slo.is_met(first, mean, duration):
            self.attained += 1


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
        return cls.of_counts(Counter(seconds), 1000.0)

    @classmethod
    def of_counts(cls, durations: Mapping[float, int] | Mapping[int, int], in_ms: float = 0.001) -> Distribution:
        """The distribution of durations with their counts. ``in_ms``: the milliseconds of their unit."""
        ordered = sorted(durations.items())
        if not ordered:
            return cls(mean=0, p50=0, p90=0, p99=0, max=0)
        passed = list(accumulate(count for _, count in ordered))
        total = passed[-1]
        places = (ordered[bisect_right(passed, _place(total, share))][0] for share in (0.5, 0.9, 0.99))
        found = (sum(duration * count for duration, count in ordered) / total, *places, ordered[-1][0])
        mean, p50, p90, p99, longest = (round(value * in_ms, 3) for value in found)
        return cls(mean=mean, p50=p50, p90=p90, p99=p99, max=longest)


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


class Report(Counts, kw_only=True):
    """The figures of one replay.

    ``rejected``: the refused requests, which ``rejections`` counts by error code, with those that are ``broken``.
    ``slo_attainment``: the share of all requests that were answered within the objectives; ``None`` without objectives.
    ``slo_shares``: the share within each single objective. ``imbalance``: the requests at the busiest engine over the
    mean of all engines. ``migrations``: the moves of answers under way; ``migration_gap_ms``: the gaps between two
    tokens in which they moved. ``speed``: virtual seconds in each real one.
    """

    rejected: int
    rejections: dict[str, int]
    cache_hit_ratio: float
    preemptions: int
    migrations: int
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


class VariantReport(Report, kw_only=True):
    """The figures of one variant of the configuration. ``name``: the keys that it sets, with their values."""

    name: str


def report(record: Record) -> Report:
    """The figures of a complete ``record``."""
    duration, rejected = record.ended, sum(record.rejected.values())
    instances = record.instances
    steps = sum(instance.steps for instance in instances)
    return Report(
        **{name: getattr(record, name) for name in Counts.__struct_fields__},
        rejected=rejected,
        rejections=dict(record.rejected),
        cache_hit_ratio=_round(_share(record.cached_tokens, record.input_tokens)),
        preemptions=sum(instance.preemptions for instance in instances),
        migrations=len(record.move_gaps),
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


_OF_ENGINE = ("name", "requests", "input_tokens", "output_tokens", "preemptions", "steps")


def _instance(instance: InstanceRecord, duration: float) -> EngineReport:
    return EngineReport(
        **{name: getattr(instance, name) for name in _OF_ENGINE},
        cache_hit_ratio=_round(_share(instance.cached_tokens, instance.input_tokens)),
        mean_batch=_round(_share(instance.batches, instance.steps)),
        busy=_round(_share(instance.busy, duration)),
        peak_kv_use=_round(instance.peak_kv_use),
    )


def _imbalance(samples: Sequence[Moment], engines: int) -> float:
    """The busiest engine's requests over the mean engine's. A moment weighs as much as it has requests."""
    live = sum(moment.requests for moment in samples)
    return _round(_share(engines * sum(moment.busiest for moment in samples), live)) or 1.0


def _place(count: int, share: float) -> int:
    """The index of the percentile ``share``, by the nearest-rank method."""
    return max(0, -(-int(share * 10000) * count // 10000) - 1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _round(value: float) -> float:
    return round(value, 3)


class _Row(msgspec.Struct, frozen=True):
    """One line of the comparison. ``best``: chooses the best value, or ``None`` if none is better."""

    name: str
    value_of: Callable[[Report], float]
    text: str = "{:,.1f}"
    best: Callable[[Sequence[float]], float] | None = min


_ROWS = (
    _Row("answered requests", lambda f: f.requests, "{:,.0f}", max),
    _Row("rejected", lambda f: f.rejected, "{:,.0f}"),
    _Row("within the objectives, %", lambda f: 100 * (f.slo_attainment or 0), best=max),
    _Row("requests/s", lambda f: f.requests_per_second, "{:,.2f}", max),
    _Row("output tokens/s", lambda f: f.output_tokens_per_second, best=max),
    _Row("ttft p50, ms", lambda f: f.ttft_ms.p50),
    _Row("ttft p99, ms", lambda f: f.ttft_ms.p99),
    _Row("itl p50, ms", lambda f: f.itl_ms.p50),
    _Row("itl p99, ms", lambda f: f.itl_ms.p99),
    _Row("tpot p99, ms", lambda f: f.tpot_ms.p99),
    _Row("latency p50, ms", lambda f: f.latency_ms.p50),
    _Row("latency p99, ms", lambda f: f.latency_ms.p99),
    _Row("input from the cache, %", lambda f: 100 * f.cache_hit_ratio, best=max),
    _Row("preemptions", lambda f: f.preemptions, "{:,.0f}"),
    _Row("swaps", lambda f: f.swaps, "{:,.0f}"),
    _Row("migrations", lambda f: f.migrations, "{:,.0f}", None),
    _Row("gap of a migration p99, ms", lambda f: f.migration_gap_ms.p99, best=None),
    _Row("sent again", lambda f: f.retried, "{:,.0f}", None),
    _Row("asked of a second replica", lambda f: f.hedged, "{:,.0f}", None),
    _Row("continued after a break", lambda f: f.continued, "{:,.0f}", None),
    _Row("broken", lambda f: f.broken, "{:,.0f}"),
    _Row("busiest engine / mean", lambda f: f.imbalance, "{:.2f}"),
)


def print_figures(variants: Sequence[Report]) -> None:
    """Print the figures of all variants side by side, the best of each line in bold, and why requests were rejected."""
    from rich.console import Console  # engines of a comparison run in processes that print nothing
    from rich.table import Table

    names = [each.name if isinstance(each, VariantReport) else "" for each in variants]
    table = Table("", show_header=any(names))
    for name in names:
        table.add_column(name.replace(", ", "\n").replace("=", "\n"), justify="right")
    for row in _ROWS:
        values = [row.value_of(variant) for variant in variants]
        if row.name.startswith("within") and variants[0].slo_attainment is None:
            continue
        table.add_row(row.name, *_cells(row, values))
    console = Console()
    console.print(table)
    for name, variant in zip(names, variants, strict=True):
        if variant.rejections:
            why = ", ".join(f"{number} {code}" for code, number in variant.rejections.items())
            console.print(f"rejected{' with ' * bool(name)}{name}: {why}")
    if len(variants) > 1:
        console.print("bold: the best of a line")
    console.print("Rejected requests are in no other figure, but count as missed objectives.")


def _cells(row: _Row, values: Sequence[float]) -> list[str]:
    texts = [row.text.format(value) for value in values]
    if row.best is None or len(set(texts)) == 1:
        return texts
    best = row.text.format(row.best(values))
    return [f"[bold]{text}[/bold]" if text == best else text for text in texts]
