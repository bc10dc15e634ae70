"""Measures the simulated engine on its virtual clock: the speed of a replay, and the cost of a step by batch size.

``python benchmarks/replay.py``: a made-up trace on one engine; then steady decoding in batches of 1 to 256, step by
step, and the scheduler's part of it.
``python benchmarks/replay.py --engines 64 --requests 1000000 --rate 500 --lengths azure-code``: through a gateway.

Times are those of the processor; of several rounds, the fastest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from resource import RUSAGE_SELF, getrusage
from time import process_time

import click
from rich.console import Console
from rich.table import Table

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.model.timing import TimingRunner
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.played_engine import Replay
from enginehouse_sim.simulator.replay.report import Record
from enginehouse_sim.simulator.replay.traces.workload import Workload
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.virtual import VirtualSettings

_STEPS = 200
_ROUNDS = 5
_CONSOLE = Console()


def replayed(workload: Workload, requests: int, engines: int, profile: str) -> tuple[Record, float]:
    """Replay the workload. Return the record, and the seconds of processor time."""
    core, began = CoreSettings(profile=profile), process_time()
    if engines == 1:
        record = Replay(workload.requests(requests), build_core(core, makes_text=False)).run()
    else:
        setting = Setting(gateway=VirtualSettings(instances=engines), core=core)
        record = GatewayReplay(workload.requests(requests), setting).run()
    return record, process_time() - began


def show(record: Record, seconds: float) -> None:
    """Print the speed of a replay."""
    steps = sum(instance.steps for instance in record.instances)
    batches = sum(instance.batches for instance in record.instances)
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    _CONSOLE.print(
        f"{record.requests:,} requests on {len(record.instances)} engines, {steps:,} steps of {batches / steps:.1f} "
        f"requests, {record.ended:,.0f} virtual seconds in {seconds:.1f} s: {record.ended / seconds:.0f} times faster; "
        f"{seconds / record.requests * 1e6:.0f} µs for each request, {seconds / batches * 1e6:.2f} µs for each request "
        f"and step; {memory:.0f} MiB"
    )


def requests_to_decode(batch: int) -> list[RequestState]:
    """``batch`` requests, each with enough tokens for all rounds."""
    return [
        RequestState(
            EngineCoreRequest(
                request_id=str(number),
                prompt_token_ids=list(range(number * 1000, number * 1000 + 64)),
                max_tokens=_STEPS * _ROUNDS * 2,
            )
        )
        for number in range(batch)
    ]


def decode_cost(batch: int) -> float:
    """Microseconds of one step in which ``batch`` requests decode."""
    constants = SchedulerConstants(max_num_seqs=batch)
    core = build_core(CoreSettings(constants=constants, profile="polynomial"), makes_text=False)
    for request in requests_to_decode(batch):
        core.scheduler.add_request(request)
    return fastest(core.step, core.scheduler.state.requests.values())


def scheduler_cost(batch: int) -> float:
    """Microseconds of ``schedule`` and ``update_from_output`` in such a step."""
    constants = SchedulerConstants(max_num_seqs=batch)
    scheduler = BatchScheduler(constants, KvCacheManager(constants))
    runner = TimingRunner(constants.token_capacity)
    for request in requests_to_decode(batch):
        scheduler.add_request(request)
    launched = deque[tuple[SchedulerOutput, ModelRunnerOutput]]()
    in_runner = 0.0

    def step() -> None:
        nonlocal in_runner
        planned = scheduler.schedule()
        began = process_time()
        launched.append((planned, runner.execute(planned)))
        in_runner += process_time() - began
        if len(launched) > 1:
            scheduler.update_from_output(*launched.popleft())

    return fastest(step, scheduler.state.requests.values(), lambda: process_time() - in_runner)


def fastest(
    step: Callable[[], object], requests: Iterable[RequestState], clock: Callable[[], float] = process_time
) -> float:
    """Microseconds of ``step`` in the fastest of several rounds, after all prompts have been computed."""
    while any(request.num_computed_tokens < request.num_tokens - 1 for request in requests):
        step()
    rounds = []
    for _ in range(_ROUNDS):
        began = clock()
        for _ in range(_STEPS):
            step()
        rounds.append(clock() - began)
    return min(rounds) / _STEPS * 1e6


@click.command()
@click.option("--requests", default=2_000, show_default=True)
@click.option("--rate", default=4.0, show_default=True, help="Requests in a virtual second.")
@click.option("--lengths", default="50-1500:20-400", show_default=True)
@click.option("--engines", default=1, show_default=True)
@click.option("--profile", default="polynomial", show_default=True)
def main(requests: int, rate: float, lengths: str, engines: int, profile: str) -> None:
    """Print the speed of a replay, and for one engine the cost of a step by batch size."""
    workload = Workload(rate=rate, lengths=lengths)
    rounds = [replayed(workload, requests, engines, profile) for _ in range(_ROUNDS if engines == 1 else 1)]
    show(*min(rounds, key=lambda pair: pair[1]))
    if engines > 1:
        return
    table = Table("requests in a step", "µs for a step", "µs for each request", "of which scheduler")
    for batch in (1, 4, 6, 16, 64, 256):
        step, scheduler = decode_cost(batch), scheduler_cost(batch)
        table.add_row(str(batch), f"{step:.0f}", f"{step / batch:.2f}", f"{scheduler / batch:.2f}")
    _CONSOLE.print(table)


if __name__ == "__main__":
    main()
