"""Measures the contenders in turn, again and again, and compares their figures round by round.

The speed of a machine changes from minute to minute. So every round measures all contenders, and a ratio compares
figures of one round. While one is measured, those that were started here are paused. Reports have the median and the
spread of the rounds' ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from enginehouse_bench.clients import Question, Seen, ask, read_streams
from enginehouse_bench.contenders import Contender, CpuTime, taking_turns, turn
from enginehouse_bench.engine import run

_WARM_UP_S = 0.1


class Workload(msgspec.Struct, frozen=True):
    """``size`` clients that send one request after another for ``seconds``, or ``size`` streams at once."""

    kind: str
    size: int
    seconds: float = 0.0

    def carry_out(self, contender: Contender, question: Question) -> Seen:
        """Have the clients ask ``contender``. Raises ``GatewayError`` for any failure."""
        if self.kind == "streams":
            return run(read_streams(contender.url, question, self.size))
        return run(ask(contender.url, question, self.size, self.seconds))


class ContenderFigures(msgspec.Struct, frozen=True):
    """One contender under one workload; times are in µs.

    ``per_s``: answers, or chunks of streams. ``p50_us`` and ``p99_us``: until an answer was whole, or a stream began.
    ``cpu_us``: processor time of each answer or chunk, and ``system_us``: what the kernel took of it; ``None`` if the
    process is not known.
    """

    per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float | None = None
    system_us: float | None = None

    @classmethod
    def of(
        cls, done: int, took: float, waits: tuple[float, float], before: CpuTime | None, after: CpuTime | None
    ) -> ContenderFigures:
        """The figures of so many answers or chunks. ``waits``: their median and 99th percentile, in seconds."""
        p50, p99 = waits
        if before is None or after is None:
            return cls(done / took, p50 * 1e6, p99 * 1e6)
        cpu, system = ((now - then) / done * 1e6 for then, now in zip(before, after, strict=True))
        return cls(done / took, p50 * 1e6, p99 * 1e6, cpu, system)


class Spread(msgspec.Struct, frozen=True):
    """The median of the rounds, the smallest and the largest."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


class Comparison(msgspec.Struct, frozen=True):
    """The first contender against another: ratios, and the time that it adds to an answer, in µs."""

    per_s: Spread
    added_p50_us: Spread
    added_p99_us: Spread
    cpu_us: Spread | None = None


class WorkloadReport(msgspec.Struct, frozen=True):
    """``figures``: medians, by contender. ``against``: the first contender compared with each of the others."""

    kind: str
    size: int
    figures: Mapping[str, ContenderFigures]
    against: Mapping[str, Comparison]


def measure(
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    question: Question,
    rounds: int,
    progress: Callable[[], object] = lambda: None,
) -> list[WorkloadReport]:
    """Carry out each workload with each contender, ``rounds`` times; ``progress`` is called after each.

    Raises ``GatewayError`` for a contender that does not answer with status 200.
    """
    reports = []
    with taking_turns(contenders):
        for workload in workloads:
            seen: dict[str, list[ContenderFigures]] = {contender.name: [] for contender in contenders}
            for _ in range(rounds):
                for contender in contenders:
                    with turn(contender):
                        warm_up(contender, question)
                        seen[contender.name].append(_figures(workload, contender, question))
                    progress()
            reports.append(report(workload, seen))
    return reports


def warm_up(contender: Contender, question: Question) -> None:
    """Let ``contender`` answer a few requests, and catch up on its work after the pause."""
    Workload("requests", 1, _WARM_UP_S).carry_out(contender, question)


def _figures(workload: Workload, contender: Contender, question: Question) -> ContenderFigures:
    before = contender.cpu_time()
    seen = workload.carry_out(contender, question)
    after = contender.cpu_time()
    done = seen.chunks if workload.kind == "streams" else len(seen.waits)
    return ContenderFigures.of(done, seen.took, middle_and_tail(seen.waits), before, after)


def middle_and_tail(waits: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    p50, p99 = statistics.quantiles([*waits, *waits], n=100)[49:99:49]
    return p50, p99


def report(workload: Workload, seen: Mapping[str, Sequence[ContenderFigures]]) -> WorkloadReport:
    """The medians of each contender's rounds, and the first contender compared with each of the others."""
    (_, ours), *others = seen.items()
    medians = {name: _medians(figures) for name, figures in seen.items()}
    against = {name: _comparison(list(zip(ours, theirs, strict=True))) for name, theirs in others}
    return WorkloadReport(workload.kind, workload.size, medians, against)


def _medians(figures: Sequence[ContenderFigures]) -> ContenderFigures:
    return ContenderFigures(
        statistics.median(each.per_s for each in figures),
        statistics.median(each.p50_us for each in figures),
        statistics.median(each.p99_us for each in figures),
        _median(each.cpu_us for each in figures),
        _median(each.system_us for each in figures),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _comparison(rounds: Sequence[tuple[ContenderFigures, ContenderFigures]]) -> Comparison:
    cpu = [ours.cpu_us / theirs.cpu_us for ours, theirs in rounds if ours.cpu_us and theirs.cpu_us]
    return Comparison(
        Spread.of([ours.per_s / theirs.per_s for ours, theirs in rounds]),
        Spread.of([ours.p50_us - theirs.p50_us for ours, theirs in rounds]),
        Spread.of([ours.p99_us - theirs.p99_us for ours, theirs in rounds]),
        Spread.of(cpu) if cpu else None,
    )
