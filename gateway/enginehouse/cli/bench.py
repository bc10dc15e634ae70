"""``enginehouse bench``: measures what the gateway costs on this machine."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from enginehouse.bench.clients import Question
from enginehouse.bench.contenders import Contender, Cores, listener, own_engine, own_gateway, pinned
from enginehouse.bench.engine import MODEL
from enginehouse.bench.rounds import Comparison, ContenderFigures, Spread, Workload, WorkloadReport, measure
from enginehouse.config.units import parse_size

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


def _counts(ctx: click.Context, param: click.Parameter, text: str) -> list[int]:
    try:
        counts = [int(each) for each in text.split(",") if each]
    except ValueError:
        counts = [0]
    if any(count < 1 for count in counts):
        raise click.BadParameter(f"'{text}' is no list of numbers above 0, such as 1,32", ctx, param)
    return counts


def _bytes(ctx: click.Context, param: click.Parameter, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _variants(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, dict[str, str]]:
    variants = {text: dict(part.partition("=")[::2] for part in shlex.split(text)) for text in texts}
    for text, keys in variants.items():
        if not all("." in key and value for key, value in keys.items()):
            raise click.BadParameter(f"'{text}' must be SECTION.KEY=VALUE, more of them after a space", ctx, param)
    return variants


@click.command()
@click.option(
    "--against", multiple=True, metavar="URL", help="Another gateway in front of the same engine; may be repeated."
)
@click.option("--engine", metavar="URL", help="The engine for all gateways, in place of a minimal one.")
@click.option("--model", default=MODEL, show_default=True, help="The model that requests name.")
@click.option("--key", default="", help="An API key that every request carries.")
@click.option("--set", "variants", multiple=True, callback=_variants, metavar="KEY=VALUE...",
              help="Also measure the gateway with these keys, such as routing.strategy=random.")  # fmt: skip
@click.option(
    "--connections", default="1,32", show_default=True, callback=_counts, help="Numbers of concurrent clients."
)
@click.option(
    "--streams", default="100", show_default=True, callback=_counts, help="Numbers of concurrent streams; '' for none."
)
@click.option("--body", default="200B", show_default=True, callback=_bytes, metavar="SIZE", help="Size of a request.")
@click.option("--unique-heads", is_flag=True, help="Give each request a traceparent of its own.")
@click.option(
    "--seconds", default=1.0, show_default=True, type=click.FloatRange(min=0.05), help="Duration of one measurement."
)
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Measurements of each gateway."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def bench(
    against: Sequence[str], engine: str | None, model: str, key: str, variants: Mapping[str, Mapping[str, str]],
    connections: Sequence[int], streams: Sequence[int], body: int, unique_heads: bool, seconds: float, rounds: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure what a gateway costs, compared with its engine alone and with other gateways.

    It starts the gateway, which has a core to itself if there are two. In each round, all get requests in turn.
    """
    question = Question(model, body, unique_heads, {"authorization": f"Bearer {key}"} if key else {})
    workloads = [Workload("requests", count, seconds) for count in connections]
    workloads += [Workload("streams", count) for count in streams]
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
    report = BenchReport(python, bool(cores.gateway), rounds, body, unique_heads, addresses, memory, reports)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        _show(report)


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


def _show(report: BenchReport) -> None:
    console = Console()
    for each in report.workloads:
        console.print(_table(each, report.rss_mib))
        for name, comparison in each.against.items():
            console.print(f"{OURS} against {escape(name)}: {_compared(comparison)}", highlight=False, soft_wrap=True)
        console.print()


def _table(report: WorkloadReport, memory: Mapping[str, float]) -> Table:
    streams = report.kind == "streams"
    rate, wait, each = ("chunks/s", "first byte", "chunk") if streams else ("requests/s", "latency", "request")
    title = f"{report.size} {'streams at once' if streams else 'clients'}"
    table = Table("", rate, f"{wait} p50 µs", "p99 µs", f"cpu µs/{each} (kernel)", "MiB", title=title)
    for name, figures in report.figures.items():
        used = f"{memory[name]:.0f}" if name in memory else ""
        table.add_row(escape(name), *_cells(figures), used)
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
