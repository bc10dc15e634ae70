"""One run of the benchmark, and its report as an object or as tables."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from enginehouse_bench.clients import Question
from enginehouse_bench.contenders import Contender, Cores, listener, own_engine, own_gateway, pinned
from enginehouse_bench.rounds import Comparison, ContenderFigures, Spread, Workload, WorkloadReport, measure
from enginehouse_kit.output import printable

OURS = "enginehouse"


class BenchReport(msgspec.Struct, frozen=True):
    """The output of ``--json``. ``pinned``: the gateways had one core, and the clients and the engine the others.

    ``rss_mib`` is the memory of each contender in MiB at the end, if it is known.
    """

    python: str
    pinned: bool
    rounds: int
    body_bytes: int
    unique_heads: bool
    contenders: Mapping[str, str]
    rss_mib: Mapping[str, float]
    workloads: Sequence[WorkloadReport]


def run(
    engine: str | None, against: Sequence[str], variants: Mapping[str, Mapping[str, str]],
    question: Question, workloads: Sequence[Workload], rounds: int,
) -> BenchReport:  # fmt: skip
    """Measure the gateway, its ``variants``, the engine and the gateways ``against`` it. Shows progress.

    ``engine``: its address; ``None`` for a minimal one. Raises ``GatewayError`` if one of them does not answer.
    """
    cores = Cores.of_this_machine()
    with (
        _contenders(engine, against, variants, cores) as contenders,
        Progress(console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("measuring", total=rounds * len(workloads) * len(contenders))
        reports = measure(contenders, workloads, question, rounds, lambda: progress.advance(task))
        memory = {each.name: round(used / 2**20, 1) for each in contenders if (used := each.memory()) is not None}
    addresses = {each.name: each.url for each in contenders}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return BenchReport(python, bool(cores.gateway), rounds, question.size, question.unique, addresses, memory, reports)


@contextmanager
def _contenders(
    engine: str | None, against: Sequence[str], variants: Mapping[str, Mapping[str, str]], cores: Cores
) -> Iterator[list[Contender]]:
    """The gateway first, then its variants, the engine and the others. Meanwhile the clients run on their own cores."""
    with ExitStack() as stack:
        url = engine or stack.enter_context(own_engine(cores))
        found = [stack.enter_context(own_gateway(OURS, url, {}, cores))]
        for name, keys in variants.items():
            found.append(stack.enter_context(own_gateway(name, url, keys, cores)))
        found.append(Contender("direct", url))
        found.extend(listener(each) for each in against)
        stack.enter_context(pinned(cores.clients))
        yield found


def show(report: BenchReport) -> None:
    """Print a table for each workload."""
    console = Console()
    for each in report.workloads:
        console.print(_table(each, report.rss_mib))
        for name, comparison in each.against.items():
            console.print(f"{OURS} against {printable(name)}: {_compared(comparison)}", highlight=False, soft_wrap=True)
        console.print()


def _table(report: WorkloadReport, memory: Mapping[str, float]) -> Table:
    streams = report.kind == "streams"
    rate, wait, each = ("chunks/s", "first byte", "chunk") if streams else ("requests/s", "latency", "request")
    title = f"{report.size} {'streams at once' if streams else 'clients'}"
    table = Table("", rate, f"{wait} p50 µs", "p99 µs", f"cpu µs/{each} (kernel)", "MiB", title=title)
    for name, figures in report.figures.items():
        used = f"{memory[name]:.0f}" if name in memory else ""
        table.add_row(printable(name), *_cells(figures), used)
    return table


def _cells(figures: ContenderFigures) -> list[str]:
    cpu = "" if figures.cpu_us is None else f"{figures.cpu_us:.1f} ({figures.system_us:.1f})"
    return [f"{figures.per_s:,.0f}", f"{figures.p50_us:,.0f}", f"{figures.p99_us:,.0f}", cpu]


def _compared(comparison: Comparison) -> str:
    added = comparison.added_p50_us
    cpu = "" if comparison.cpu_us is None else f", processor time {_ratio(comparison.cpu_us)}"
    waited = f"{added.median:+,.0f} µs at the median ({added.least:+,.0f} to {added.most:+,.0f})"
    return f"rate {_ratio(comparison.per_s)}{cpu}, {waited}"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f}x ({spread.least:.2f} to {spread.most:.2f})"
