"""Measures how well strategies place requests: every bundled one over traces, loads, fleets and seeds, in virtual time.

``python benchmarks/placement.py``: a table in Markdown, with medians over the seeds and the lowest and highest p99.
``python benchmarks/placement.py --fleets U4 --traces chat --strategies cache_aware,smart --seeds 11,12``: a part of it.

Fleets: ``S4`` and ``S8`` are 4 and 8 engines of 4 slots; ``U4`` is ``S4`` with one engine at half speed; ``V4`` is 4
engines of 64 slots. Loads are multiples of the rates of ``TRACES``: ``light``, ``busy`` and ``full`` are about 25, 50
and 80 % of what four engines of 4 slots serve under ``round_robin`` with a queue that is never empty. The parameters of
a strategy go into ``--set``.
``--strategies`` may also name ``planner``, which knows the truth, and ``first_cache_aware``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from statistics import geometric_mean, median
from typing import NamedTuple

import click
from placement_baselines import BaselineSettings, EngineSpeed
from placement_traces import TRACES, request, trace

from enginehouse import VirtualSettings
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.replay.faults import PlannedFault
from enginehouse_sim.simulator.replay.figures.report import Distribution
from enginehouse_sim.simulator.replay.figures.slo import Slo
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting

STRATEGIES = "smart,round_robin,random,least_pending,p2c,cache_aware"
LOADS = {"light": 0.4, "busy": 0.85, "full": 1.36}
SLO = Slo(ttft=0.5, tpot=0.025)


class Fleet(NamedTuple):
    """Engines of ``slots`` slots each. ``faults``: from the beginning."""

    engines: int
    slots: int
    faults: tuple[str, ...] = ()
    traffic: float = 1.0
    """The share of the traffic that its slots would take: large batches are slower."""


FLEETS = {
    "S4": Fleet(4, 4),
    "S8": Fleet(8, 4),
    "U4": Fleet(4, 4, ("engine-4:slow=2@0",), 0.85),
    "V4": Fleet(4, 64, (), 0.1),
}


class Cell(NamedTuple):
    """What all strategies are compared in."""

    fleet: str
    load: str
    trace: str


class Job(NamedTuple):
    cell: Cell
    strategy: str
    seed: int
    requests: int
    values: tuple[tuple[str, str], ...]


class Figures(NamedTuple):
    """Times in milliseconds, shares in percent."""

    mean: float
    p50: float
    p99: float
    attained: float
    cached: float


def _core(slots: int) -> CoreSettings:
    constants = SchedulerConstants(total_gpu_blocks=6000, max_num_seqs=slots, max_model_len=131072)
    return CoreSettings(profile="h100-llama3-8b", constants=constants)


@cache
def speed() -> EngineSpeed:
    """What an engine of the profile takes for a request alone."""
    sizes = [2**power for power in range(6, 16)]
    lone = [
        request(30.0 * place, range(1000 * place, 1000 * place + size // 64), 100) for place, size in enumerate(sizes)
    ]
    setting = Setting(gateway=VirtualSettings(instances=1), core=_core(1))
    record = GatewayReplay(iter(lone), setting).run()
    firsts = zip([each.input_length for each in lone], record.times_to_first, strict=True)
    return EngineSpeed(tuple(firsts), max(record.gaps, key=lambda gap: record.gaps[gap]) / 1e6)


def measured(job: Job) -> Figures:
    """Replay one trace under one strategy."""
    fleet = FLEETS[job.cell.fleet]
    slots = fleet.engines * fleet.slots * fleet.traffic
    traffic = trace(job.cell.trace, LOADS[job.cell.load], slots, job.requests, job.seed)
    faults = [PlannedFault.parse(fault) for fault in fleet.faults]
    settings = BaselineSettings(
        instances=fleet.engines,
        values=(("routing.strategy", job.strategy), *job.values),
        seed=job.seed,
        requests=tuple(traffic),
        speed=speed(),
        slow=tuple((fault.engine, fault.factor) for fault in faults),
    )
    setting = Setting(
        gateway=settings,
        core=_core(fleet.slots),
        slo=SLO,
        faults=tuple(faults),
    )
    record = GatewayReplay(iter(traffic), setting).run()
    times = Distribution.of(record.times_to_first)
    all_requests = record.requests + sum(record.rejected.values())
    return Figures(
        times.mean,
        times.p50,
        times.p99,
        100 * record.attained / all_requests,
        100 * record.cached_tokens / max(1, record.input_tokens),
    )


def _row(strategy: str, runs: Sequence[Figures]) -> str:
    mean, p50, p99, attained, cached = (median(each) for each in zip(*runs, strict=True))
    spread = [run.p99 for run in runs]
    return (
        f"| `{strategy}` | {mean:.0f} | {p50:.0f} | {p99:.0f} [{min(spread):.0f}-{max(spread):.0f}] "
        f"| {attained:.1f} | {cached:.0f} |"
    )


def _print_cell(cell: Cell, runs: dict[str, list[Figures]]) -> None:
    click.echo(f"\n**{cell.fleet} {cell.load} {cell.trace}**\n")
    click.echo(
        "| strategy | mean, ms | p50 | p99 [least-most] | objectives, % | cached, % |\n|---|---|---|---|---|---|"
    )
    for strategy, figures in runs.items():
        click.echo(_row(strategy, figures))


def _print_ratios(results: dict[Cell, dict[str, list[Figures]]], strategies: Sequence[str]) -> None:
    click.echo("\n| strategy | mean to the best | p99 to the best | worst mean | worst p99 | worst objectives |")
    click.echo("|---|---|---|---|---|---|")
    for strategy in strategies:
        means, tails, gaps = zip(*(_to_the_best(runs, strategy) for runs in results.values()), strict=True)
        click.echo(
            f"| `{strategy}` | {geometric_mean(means):.2f} | {geometric_mean(tails):.2f} | {max(means):.2f} "
            f"| {max(tails):.2f} | {min(gaps):+.1f} |"
        )


def _to_the_best(runs: dict[str, list[Figures]], strategy: str) -> tuple[float, float, float]:
    """Ratios of mean and p99 to the best other strategy, and the difference of shares within the objectives."""
    others = [found for name, found in runs.items() if name != strategy] or [runs[strategy]]
    own = runs[strategy]
    best_mean = min(median(run.mean for run in found) for found in others)
    best_tail = min(median(run.p99 for run in found) for found in others)
    best_share = max(median(run.attained for run in found) for found in others)
    return (
        median(run.mean for run in own) / best_mean,
        median(run.p99 for run in own) / best_tail,
        median(run.attained for run in own) - best_share,
    )


def _listed(_: object, __: object, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _cells(fleets: Iterable[str], loads: Iterable[str], traces: Sequence[str]) -> list[Cell]:
    return [Cell(fleet, load, name) for fleet in fleets for load in loads for name in traces]


@click.command()
@click.option("--traces", default=",".join(TRACES), callback=_listed, show_default=True)
@click.option("--loads", default=",".join(LOADS), callback=_listed, show_default=True)
@click.option("--fleets", default=",".join(FLEETS), callback=_listed, show_default=True)
@click.option("--strategies", default=STRATEGIES, callback=_listed, show_default=True)
@click.option("--seeds", default="1,2,3,4", callback=_listed, show_default=True)
@click.option("--requests", default=400, show_default=True)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A key of the configuration.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.")
def main(
    traces: list[str],
    loads: list[str],
    fleets: list[str],
    strategies: list[str],
    seeds: list[str],
    requests: int,
    changes: Sequence[str],
    jobs: int,
) -> None:
    """Print the figures of each strategy in each cell, then its ratios to the best other one."""
    values = tuple((key, value) for key, _, value in (change.partition("=") for change in changes))
    cells = _cells(fleets, loads, traces)
    work = [
        Job(cell, strategy, int(seed), requests, values) for cell in cells for strategy in strategies for seed in seeds
    ]
    results: dict[Cell, dict[str, list[Figures]]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for job, figures in zip(work, pool.map(measured, work), strict=True):
            results.setdefault(job.cell, {}).setdefault(job.strategy, []).append(figures)
            if len(results[job.cell].get(strategies[-1], ())) == len(seeds):
                _print_cell(job.cell, results[job.cell])
    _print_ratios(results, strategies)


if __name__ == "__main__":
    main()
