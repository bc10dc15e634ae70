"""The commands ``enginehouse sim replay`` and ``enginehouse sim steps``."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from enginehouse import ConfigError
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.replay.formats import read_trace
from enginehouse_sim.simulator.replay.plot import plot
from enginehouse_sim.simulator.replay.report import Distribution, Report, report
from enginehouse_sim.simulator.replay.simulate import Replay

_STEPS_PER_REFRESH = 256


def run_replay(trace: Path, core: CoreSettings, limit: int | None, as_json: bool, picture: Path | None) -> None:
    """Replay a trace and print the report. Raises ``EnginehouseError``."""
    replay = Replay(read_trace(trace, limit), build_core(core))
    _run_with_progress(replay)
    figures = report(replay.record)
    if picture is not None:
        _draw(replay, picture)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(figures), indent=2))
    else:
        _print(figures)


def run_steps(trace: Path, core: CoreSettings, limit: int | None, as_json: bool) -> None:
    """Print every step of a trace. Raises ``EnginehouseError``."""
    replay = Replay(read_trace(trace, limit), build_core(core))
    encoder = msgspec.json.Encoder(order="deterministic")
    for planned in replay.steps():
        if as_json:
            click.echo(encoder.encode(planned))
        else:
            plan = ", ".join(f"{name}: {tokens}" for name, tokens in planned.num_scheduled_tokens.items())
            click.echo(f"{replay.now:10.4f} s  step {planned.step}: {plan or 'nothing'}")


def _run_with_progress(replay: Replay) -> None:
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=replay.total)
        for number, _ in enumerate(replay.steps()):
            if number % _STEPS_PER_REFRESH == 0:
                progress.update(task, completed=replay.finished)


def _draw(replay: Replay, picture: Path) -> None:
    try:
        plot(replay.record, picture)
    except ImportError:
        remedy = "install it: pip install 'enginehouse[plot]'"
        raise ConfigError("A picture needs matplotlib", key="--plot", remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"The picture cannot be written: {error}", key="--plot") from error


def _print(figures: Report) -> None:
    console = Console()
    console.print(
        f"{figures.requests} requests in {figures.virtual_seconds:,.1f} virtual seconds: "
        f"{figures.requests_per_second:,.2f} requests/s, {figures.output_tokens_per_second:,.1f} output tokens/s"
    )
    console.print(
        f"{figures.steps} steps of {figures.mean_batch:.1f} requests; {figures.preemptions} preemptions; "
        f"{figures.cache_hit_ratio:.1%} of the input was cached"
    )
    latencies = Table("ms", "mean", "p50", "p90", "p99", "max")
    for name in ("ttft", "itl", "tpot", "latency"):
        spread: Distribution = getattr(figures, f"{name}_ms")
        latencies.add_row(name, *(f"{value:,.1f}" for value in msgspec.structs.astuple(spread)))
    console.print(latencies)
    costs = Table("requests in a step", "steps", "µs for a step", "µs for each request")
    for cost in figures.step_costs:
        size = f"{cost.batch_from} to {cost.batch_to}" if cost.batch_to > 1 else "1"
        costs.add_row(size, str(cost.steps), f"{cost.mean_us:,.1f}", f"{cost.mean_us_per_request:,.2f}")
    console.print(costs)
    console.print(f"{figures.speed:,.0f} virtual seconds in each real one")
