"""Measures how strategies place models at rest over hosts with room for one model each, in virtual time.

``python benchmarks/cold_placement.py``: four models that are asked for at once over two hosts; and two models over two
or four hosts, of which now one and now the other one is popular. A load takes 3.25 s.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import msgspec
from placement_traces import request

from enginehouse_sim.simulator.domain.constants import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings

LOAD_S = 3.25
CASES = {"2 hosts light": (2, 0.5), "2 hosts busy": (2, 4.0), "4 hosts light": (4, 1.0), "4 hosts busy": (4, 8.0)}
"""The hosts, and requests per second."""


class ColdFigures(NamedTuple):
    """``mean``: seconds to the first token. ``swaps``: in all. ``soon``: percent within 2 s."""

    mean: float
    swaps: float
    soon: float


def flips(rate: float, number: int, seed: int) -> Iterator[TraceRequest]:
    """Two models, one of which gets nine of ten requests; a minute later it is the other one."""
    chance, at = random.Random(seed), 0.0
    for place in range(number):
        at += chance.expovariate(rate)
        popular = int(at // 60) % 2
        model = popular if chance.random() < 0.9 else 1 - popular
        yield of_model(model, at, place)


def of_model(model: int, at: float, place: int) -> TraceRequest:
    """A request with a prompt of its own."""
    return msgspec.structs.replace(request(at, range(10 * place, 10 * place + 10), 60), model=f"m{model}")


def measured(trace: Iterable[TraceRequest], models: int, hosts: int, strategy: str) -> ColdFigures:
    """Replay a trace."""
    names = [f"h{number}" for number in range(1, hosts + 1)]
    tables = [f"hosts = {{ {', '.join(f'{name} = {{}}' for name in names)} }}", f'routing.strategy = "{strategy}"']
    tables += [f'[models.m{number}]\ndriver = "sim"\nhost = {names}' for number in range(models)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "enginehouse.toml"
        file.write_text("\n".join(tables))
        core = CoreSettings(profile="h100-llama3-8b", constants=SchedulerConstants(total_gpu_blocks=6000))
        setting = Setting(gateway=VirtualSettings(file=file), core=core, load_time=LOAD_S)
        record = GatewayReplay(iter(trace), setting).run()
    times = record.times_to_first
    soon = sum(time < 2 for time in times) / len(times)
    return ColdFigures(sum(times) / len(times), record.swaps, 100 * soon)


@click.command()
@click.option("--strategies", default="smart,round_robin,least_pending,cache_aware", show_default=True)
@click.option("--seeds", default="31,32,33,34", show_default=True)
@click.option("--requests", default=300, show_default=True)
def main(strategies: str, seeds: str, requests: int) -> None:
    """Print the figures of each strategy: medians over the seeds."""
    names = strategies.split(",")
    click.echo(f"| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    four = [of_model(model, 0.01 * model, model) for model in range(4)]
    cells = [f"{measured(four, 4, 2, name).mean:.2f} s" for name in names]
    click.echo(f"| four models at once, 2 hosts | {' | '.join(cells)} |")
    for case, (hosts, rate) in CASES.items():
        cells = []
        for name in names:
            runs = [measured(flips(rate, requests, int(seed)), 2, hosts, name) for seed in seeds.split(",")]
            mean, swaps, soon = (median(each) for each in zip(*runs, strict=True))
            cells.append(f"{mean:.2f} s, {swaps:.0f} swaps, {soon:.0f} %")
        click.echo(f"| two models, {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
