"""Replays cases that users of other gateways have reported, in virtual time, with several strategies.

``python benchmarks/field_cases.py``: a table in Markdown. ``--cases sessions,equal`` and ``--strategies`` take a part.
``--scale 0.2`` replays a fifth of the requests.

Most cases are closed loops: a client sends its next request when it has the answer to the last one. The engines have
the profile ``h100-llama3-8b``.

- ``sessions``: 3 engines of 32 slots, 40 sessions at once of 10 turns, 1,200 requests, 1,420 prompt tokens on average.
- ``equal``: 2 engines of 256 slots, 512 requests at once, each prompt of 1,000 tokens is new.
- ``stall``: as ``equal``, and one engine stands still from 5 s to 7 s.
- ``shared``: 2 engines of 64 slots, 36 requests at once of 9,800 tokens, of which 2,500 are shared.
- ``popular``: 8 engines of 16 slots, 112 requests at once that begin with the same 2,000 tokens.
- ``saturated``, ``light``: 4 engines of 16 slots, sessions as in the first case, 96 or 8 at once.
- ``giants``: 4 engines of 32 slots, 4 requests of 30,000 tokens among 60 at once of 500.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import NamedTuple

import click
from msgspec.structs import replace
from placement_traces import Source, request

from enginehouse_sim.simulator.domain.constants import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.replay.faults import PlannedFault
from enginehouse_sim.simulator.replay.figures.report import Distribution
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.played_server import PlayedClient
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings

STRATEGIES = "cache_aware,round_robin,least_pending,p2c,smart"
Talk = Iterator[TraceRequest]


class Case(NamedTuple):
    """``talks`` makes the conversations, of which ``at_once`` go on at a time."""

    engines: int
    slots: int
    at_once: int
    talks: Callable[[Source, int], Iterator[Talk]]
    requests: int
    faults: tuple[str, ...] = ()


def _sessions(source: Source, number: int) -> Iterator[Talk]:
    for _ in range(number // 10):
        yield source.conversation(0.0, 10, source.blocks(700), 130, 60)


def _singles(tokens: int, shared: int, out: int) -> Callable[[Source, int], Iterator[Talk]]:
    def talks(source: Source, number: int) -> Iterator[Talk]:
        begin = source.blocks(shared) if shared else []
        for _ in range(number):
            yield iter([request(0.0, [*begin, *source.blocks(tokens - shared)], source.around(out))])

    return talks


def _giants(source: Source, number: int) -> Iterator[Talk]:
    for index in range(number):
        giant = index % 15 == 7
        yield iter([request(0.0, source.blocks(30_000 if giant else 500), 400 if giant else source.around(100))])


CASES: Mapping[str, Case] = {
    "sessions": Case(3, 32, 40, _sessions, 1200),
    "equal": Case(2, 256, 512, _singles(1000, 0, 150), 2000),
    "stall": Case(2, 256, 512, _singles(1000, 0, 150), 2000, ("engine:stall@5+2",)),
    "shared": Case(2, 64, 36, _singles(9800, 2500, 100), 400),
    "popular": Case(8, 16, 112, _singles(2100, 2000, 100), 1200),
    "light": Case(4, 16, 8, _sessions, 600),
    "saturated": Case(4, 16, 96, _sessions, 1200),
    "giants": Case(4, 32, 60, _giants, 600),
}


class Waiting(Iterator[TraceRequest]):
    """The requests that have not been sent. It goes on after its end when there are more."""

    def __init__(self) -> None:
        self.requests: deque[TraceRequest] = deque()

    def __next__(self) -> TraceRequest:
        if not self.requests:
            raise StopIteration
        return self.requests.popleft()


class ClosedLoop(GatewayReplay):
    """Sends the next request of a conversation when the last one has ended, and after its end those of another.

    ``places``: the engine of each request. ``tokens``: the most prompt tokens in flight at each engine.
    """

    def __init__(self, talks: Iterator[Talk], at_once: int, setting: Setting) -> None:
        self._talks = talks
        self._waiting = Waiting()
        self._order: deque[Talk] = deque()
        self._talk_of: dict[int, Talk] = {}
        self.places: dict[int, str] = {}
        super().__init__(self._waiting, setting)
        for index in range(at_once):
            self._send_first(index * 0.01)

    def routed(self, number: int, backend: str) -> None:
        self.places[number] = backend

    def _send(self, talk: Talk, asked: TraceRequest, at: float) -> None:
        self._waiting.requests.append(replace(asked, arrival=at))
        self._order.append(talk)

    def _send_first(self, at: float) -> None:
        for talk in self._talks:
            for first in talk:
                self._send(talk, first, at)
                return

    def _submit(self, number: int, trace: TraceRequest) -> None:
        self._talk_of[number] = self._order.popleft()
        super()._submit(number, trace)

    def _client_ended(self, client: PlayedClient, code: str) -> None:
        talk, now = self._talk_of.pop(client.number), self._loop.time() - self.world.began
        if (following := next(talk, None)) is not None:
            self._send(talk, following, now)
        else:
            self._send_first(now)
        if self.world.has_read_all:
            self.world.read_on()
        super()._client_ended(client, code)


class Figures(NamedTuple):
    """Times to the first token in ms, requests a second, cached share in percent, the busiest engine's share."""

    mean: float
    p99: float
    rate: float
    cached: float
    busiest: float


def measured(job: tuple[str, str, int, float]) -> Figures:
    """Replay one case under one strategy."""
    name, strategy, seed, scale = job
    case = CASES[name]
    constants = SchedulerConstants(total_gpu_blocks=24_000, max_num_seqs=case.slots, max_model_len=131_072)
    setting = Setting(
        gateway=VirtualSettings(instances=case.engines, values=(("routing.strategy", strategy),), seed=seed),
        core=CoreSettings(profile="h100-llama3-8b", constants=constants),
        faults=tuple(map(PlannedFault.parse, case.faults)),
    )
    talks = case.talks(Source(f"{name}/{seed}"), round(case.requests * scale))
    replay = ClosedLoop(talks, case.at_once, setting)
    record = replay.run()
    times = Distribution.of(record.times_to_first)
    busiest = max(Counter(replay.places.values()).values()) * case.engines / len(replay.places)
    cached = 100 * record.cached_tokens / max(1, record.input_tokens)
    return Figures(times.mean, times.p99, record.requests / record.ended, cached, busiest)


def _listed(_: object, __: object, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@click.command()
@click.option("--cases", default=",".join(CASES), callback=_listed, show_default=True)
@click.option("--strategies", default=STRATEGIES, callback=_listed, show_default=True)
@click.option("--seeds", default="1,2,3", callback=_listed, show_default=True)
@click.option("--scale", default=1.0, help="Share of the requests.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.")
def main(cases: Sequence[str], strategies: Sequence[str], seeds: Sequence[str], scale: float, jobs: int) -> None:
    """Print the medians over the seeds, with the lowest and highest p99."""
    click.echo("| case | strategy | mean, ms | p99 [least-most] | requests/s | cached, % | busiest engine |")
    click.echo("|---|---|---|---|---|---|---|")
    work = [(case, strategy, int(seed), scale) for case in cases for strategy in strategies for seed in seeds]
    found: dict[tuple[str, str], list[Figures]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for (case, strategy, _, _), figures in zip(work, pool.map(measured, work), strict=True):
            runs = found.setdefault((case, strategy), [])
            runs.append(figures)
            if len(runs) == len(seeds):
                click.echo(_row(case, strategy, runs))


def _row(case: str, strategy: str, runs: Sequence[Figures]) -> str:
    average, p99, rate, cached, busiest = (median(each) for each in zip(*runs, strict=True))
    tails = [run.p99 for run in runs]
    return (
        f"| {case} | `{strategy}` | {average:.0f} | {p99:.0f} [{min(tails):.0f}-{max(tails):.0f}] "
        f"| {rate:.1f} | {cached:.0f} | {busiest:.2f} |"
    )


if __name__ == "__main__":
    main()
