"""Measures how well strategies place requests: every bundled one over traces, loads, fleets and seeds, in virtual time.

``python benchmarks/placement.py``: a table in Markdown, with medians over the seeds and the lowest and highest p99.
``python benchmarks/placement.py --fleets U4 --traces chat --strategies cache_aware,smart --seeds 11,12``: a part of it.

Fleets: ``S4`` and ``S8`` are 4 and 8 engines of 4 slots; ``U4`` is ``S4`` with one engine at half speed; ``V4`` is 4
engines of 64 slots; ``A8`` is ``S8`` with room for 4,000,000 tokens in each cache, for the trace ``coding``. Loads are
multiples of the rates of ``TRACES``: ``light``, ``busy`` and ``full`` are about 25, 50 and 80 % of what four engines of
4 slots serve under ``round_robin`` with a queue that is never empty. ``--loads`` takes multiples too; those of
``coding`` are shares of what the engines serve if they read nothing twice. The parameters of a strategy go into
``--set``.
``--plain 0,0.5,1``: each trace with all, half and none of its answers as streams. Latency is the time to the last
token; the first byte of an answer that is no stream comes with it.
``--strategies`` may also name ``planner``, which knows the truth, and ``first_cache_aware``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from statistics import geometric_mean, median
from typing import NamedTuple

import click
import msgspec
from placement_baselines import BaselineSettings, EngineSpeed
from placement_traces import TRACES, request, reusable, trace

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.replay.faults import PlannedFault
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.report import Distribution, Slo
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings

STRATEGIES = "smart,round_robin,random,least_pending,p2c,cache_aware"
LOADS = {"light": 0.4, "busy": 0.85, "full": 1.36}
SLO = Slo(ttft=0.5, tpot=0.025)


class Fleet(NamedTuple):
    """Engines of ``slots`` slots each. ``faults``: from the beginning."""

    engines: int
    slots: int
    faults: tuple[str, ...] = ()
    cache: int = 96_000
    """In tokens."""
    traffic: float = 1.0
    """The share of the traffic that its slots would take: large batches are slower."""


FLEETS = {
    "S4": Fleet(4, 4),
    "S8": Fleet(8, 4),
    "U4": Fleet(4, 4, ("engine-4:slow=2@0",), traffic=0.85),
    "V4": Fleet(4, 64, traffic=0.1),
    "A8": Fleet(8, 4, cache=4_000_000),
}


class Cell(NamedTuple):
    """What all strategies are compared in."""

    fleet: str
    load: str
    trace: str
    plain: float = 0.0
    """The share of answers that are no streams."""


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
    latency: float
    latency_p99: float
    attained: float
    cached: float
    captured: float
    """Of the tokens that earlier prompts began with."""


def _core(slots: int, cache: int = FLEETS["S4"].cache) -> CoreSettings:
    longest = max(131_072, cache // 4)
    constants = SchedulerConstants(total_gpu_blocks=cache // 16, max_num_seqs=slots, max_model_len=longest)
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
    load = LOADS.get(job.cell.load) or float(job.cell.load)
    traffic = _partly_plain(trace(job.cell.trace, load, slots, job.requests, job.seed), job.cell.plain, job.seed)
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
        core=_core(fleet.slots, fleet.cache),
        slo=SLO,
        faults=tuple(faults),
    )
    record = GatewayReplay(iter(traffic), setting).run()
    times, latencies = Distribution.of(record.times_to_first), Distribution.of(record.durations)
    all_requests = record.requests + sum(record.rejected.values())
    return Figures(
        times.mean,
        times.p50,
        times.p99,
        latencies.mean,
        latencies.p99,
        100 * record.attained / all_requests,
        100 * record.cached_tokens / max(1, record.input_tokens),
        100 * record.cached_tokens / max(1, reusable(traffic)),
    )


def _partly_plain(requests: Sequence[TraceRequest], share: float, seed: int) -> list[TraceRequest]:
    """The requests, a ``share`` of them without a stream; the same ones for all strategies."""
    chance = random.Random(f"plain/{seed}")
    return [msgspec.structs.replace(each, stream=chance.random() >= share) for each in requests]


def _row(strategy: str, runs: Sequence[Figures]) -> str:
    mean, p50, p99, latency, latency_p99, attained, cached, captured = (
        median(each) for each in zip(*runs, strict=True)
    )
    spread = [run.p99 for run in runs]
    return (
        f"| `{strategy}` | {mean:.0f} | {p50:.0f} | {p99:.0f} [{min(spread):.0f}-{max(spread):.0f}] "
        f"| {latency:.0f} | {latency_p99:.0f} | {attained:.1f} | {cached:.0f} | {captured:.1f} |"
    )


def _print_cell(cell: Cell, runs: dict[str, list[Figures]]) -> None:
    plain = f", {cell.plain:.0%} plain" if cell.plain else ""
    click.echo(f"\n**{cell.fleet} {cell.load} {cell.trace}{plain}**\n")
    click.echo(
        "| strategy | mean, ms | p50 | p99 [least-most] | latency mean | latency p99 | objectives, % | cached, % "
        "| captured, % |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for strategy, figures in runs.items():
        click.echo(_row(strategy, figures))


def _print_ratios(results: dict[Cell, dict[str, list[Figures]]], strategies: Sequence[str]) -> None:
    click.echo(
        "\n| strategy | mean to the best | p99 to the best | worst mean | worst p99 | latency to the best | worst "
        "| p99 | worst p99 | worst objectives | plain to streamed: worst latency | worst p99 |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for strategy in strategies:
        columns = zip(*(_to_the_best(runs, strategy) for runs in results.values()), strict=True)
        means, tails, latencies, late, gaps = (list(column) for column in columns)
        plain = [_to_streams(results, cell, strategy) for cell in results if cell.plain]
        means_plain, tails_plain = zip(*plain, strict=True) if plain else ((0.0,), (0.0,))
        click.echo(
            f"| `{strategy}` | {geometric_mean(means):.2f} | {geometric_mean(tails):.2f} | {max(means):.2f} "
            f"| {max(tails):.2f} | {geometric_mean(latencies):.2f} | {max(latencies):.2f} | {geometric_mean(late):.2f} "
            f"| {max(late):.2f} | {min(gaps):+.1f} | {max(means_plain):.3f} | {max(tails_plain):.3f} |"
        )


def _to_the_best(runs: dict[str, list[Figures]], strategy: str) -> tuple[float, float, float, float, float]:
    """Ratios to the best other strategy: the first token's mean and p99, the latency's. And a difference of shares.

    The latter: of the requests within the objectives.
    """
    others = [found for name, found in runs.items() if name != strategy] or [runs[strategy]]
    own, *best = ([median(column) for column in zip(*found, strict=True)] for found in (runs[strategy], *others))
    figures = [Figures(*each) for each in best]
    own_figures = Figures(*own)
    return (
        own_figures.mean / min(each.mean for each in figures),
        own_figures.p99 / min(each.p99 for each in figures),
        own_figures.latency / min(each.latency for each in figures),
        own_figures.latency_p99 / min(each.latency_p99 for each in figures),
        own_figures.attained - max(each.attained for each in figures),
    )


def _to_streams(results: dict[Cell, dict[str, list[Figures]]], cell: Cell, strategy: str) -> tuple[float, float]:
    """Ratios of the latency, mean and p99, to those of the same trace as streams; 0 if that was not measured."""
    streamed = results.get(cell._replace(plain=0.0))
    if streamed is None:
        return 0.0, 0.0
    (mean, mean_streamed), (late, late_streamed) = (
        [median(getattr(run, name) for run in runs[strategy]) for runs in (results[cell], streamed)]
        for name in ("latency", "latency_p99")
    )
    return mean / mean_streamed, late / late_streamed


def _listed(_: object, __: object, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _cells(fleets: Iterable[str], loads: Sequence[str], traces: Sequence[str], shares: Sequence[str]) -> list[Cell]:
    return [
        Cell(fleet, load, name, float(share))
        for fleet in fleets
        for load in loads
        for name in traces
        for share in shares
    ]


@click.command()
@click.option(
    "--traces", default=",".join(name for name in TRACES if name != "coding"), callback=_listed, show_default=True
)
@click.option("--loads", default=",".join(LOADS), callback=_listed, show_default=True)
@click.option(
    "--fleets", default=",".join(name for name in FLEETS if name != "A8"), callback=_listed, show_default=True
)
@click.option("--strategies", default=STRATEGIES, callback=_listed, show_default=True)
@click.option("--seeds", default="1,2,3,4", callback=_listed, show_default=True)
@click.option("--plain", "shares", default="0", callback=_listed, show_default=True, help="Shares of plain answers.")
@click.option("--requests", default=400, show_default=True)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A key of the configuration.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.")
def main(
    traces: list[str],
    loads: list[str],
    fleets: list[str],
    strategies: list[str],
    seeds: list[str],
    shares: list[str],
    requests: int,
    changes: Sequence[str],
    jobs: int,
) -> None:
    """Print the figures of each strategy in each cell, then its ratios to the best other one."""
    values = tuple((key, value) for key, _, value in (change.partition("=") for change in changes))
    cells = _cells(fleets, loads, traces, shares)
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
