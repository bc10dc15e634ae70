"""Measures the simulated engine on its virtual clock: its speed over real time, and the cost of a step by batch size.

``python benchmarks/replay.py``: 10,000 requests of a made-up trace, then steady decoding in batches of 1 to 256.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter, process_time

import click
from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.replay.figures.report import Report, report
from enginehouse_sim.simulator.replay.simulate import Replay
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

_STEPS = 400


def trace(requests: int, rate: float) -> Iterator[TraceRequest]:
    """Poisson arrivals, ``rate`` per second; prompts of 50 to 1500 tokens, answers of 20 to 400."""
    chance = random.Random(1)
    now = 0.0
    for _ in range(requests):
        now += chance.expovariate(rate)
        yield TraceRequest(arrival=now, input_length=chance.randint(50, 1500), output_length=chance.randint(20, 400))


def replayed(requests: int, rate: float, profile: str) -> tuple[Report, float, float]:
    """The report, and the real and the processor's seconds of the whole replay."""
    replay = Replay(list(trace(requests, rate)), build_core(CoreSettings(profile=profile)))
    began, busy = perf_counter(), process_time()
    record = replay.run()
    took, worked = perf_counter() - began, process_time() - busy
    return report(record), took, worked


def decode_cost(batch: int) -> float:
    """Processor microseconds of one step in which ``batch`` requests decode."""
    core = build_core(CoreSettings(constants=SchedulerConstants(max_num_seqs=batch), profile="polynomial"))
    for number in range(batch):
        prompt = list(range(number * 1000, number * 1000 + 64))
        core.add_request(RequestState(request_id=str(number), prompt_token_ids=prompt, max_tokens=2 * _STEPS))
    while any(
        request.num_computed_tokens < request.num_tokens - 1 for request in core.scheduler.state.requests.values()
    ):
        core.step()
    began = process_time()
    for _ in range(_STEPS):
        core.step()
    return (process_time() - began) / _STEPS * 1e6


@click.command()
@click.option("--requests", default=10_000, show_default=True)
@click.option("--rate", default=4.0, show_default=True, help="Requests in a virtual second.")
@click.option("--profile", default="polynomial", show_default=True)
def main(requests: int, rate: float, profile: str) -> None:
    """Print both tables."""
    console = Console()
    figures, took, worked = replayed(requests, rate, profile)
    console.print(
        f"{figures.requests} requests, {figures.steps} steps of {figures.mean_batch:.1f} requests, "
        f"{figures.virtual_seconds:,.0f} virtual seconds in {took:.1f} s ({worked:.1f} s of the processor): "
        f"{figures.virtual_seconds / took:.0f} times as fast ({figures.virtual_seconds / worked:.0f} by the processor)"
    )
    table = Table("requests in a step", "µs for a step", "µs for each request")
    for batch in (1, 4, 16, 64, 256):
        cost = decode_cost(batch)
        table.add_row(str(batch), f"{cost:.0f}", f"{cost / batch:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
