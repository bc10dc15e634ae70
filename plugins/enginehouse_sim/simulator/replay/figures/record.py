"""The record of a replay, in bounded memory: three numbers for each request, counts for all else."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from typing import Any

import msgspec

from enginehouse_sim.simulator.replay.figures.slo import Slo

_SAMPLES = 600


class RequestRecord:
    """One request while it is live; times are seconds on the virtual clock. ``subject``: its owner's own.

    ``has_moved``: to another engine, which has not made a token of it yet. ``is_read``: another engine read the prompt.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "first_token",
        "has_moved",
        "input_length",
        "is_read",
        "last_token",
        "output_tokens",
        "subject",
    )

    def __init__(self, arrival: float, input_length: int, subject: Any = None) -> None:
        self.arrival = arrival
        self.input_length = input_length
        self.subject = subject
        self.has_moved = False
        self.is_read = False
        self.first_token = -1.0
        self.last_token = arrival
        self.output_tokens = 0
        self.cached_tokens = 0


class ReadAheadRecord(RequestRecord):
    """A request that fills a prefix cache before another one moves. No figure counts it. ``done``: it has ended."""

    __slots__ = ("done",)

    def __init__(self, arrival: float) -> None:
        super().__init__(arrival, 0, self)
        self.done = asyncio.Event()

    def answered(self) -> None:
        """No client reads its answer."""


class InstanceRecord(msgspec.Struct, kw_only=True):
    """One engine. ``busy``: the seconds of its steps. ``peak_kv_use``: the largest sampled share of blocks."""

    name: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    batches: int = 0
    busy: float = 0.0
    peak_kv_use: float = 0.0


class Moment(msgspec.Struct, frozen=True, gc=False):
    """The state of all engines at one time: requests running, at engines waiting, in queues of the gateway waiting.

    ``busiest``: the most requests at one engine. ``kv_use``: the mean share of blocks in use. ``preemptions``: so far.
    """

    time: float
    running: int
    waiting: int
    queued: int
    busiest: int
    kv_use: float
    preemptions: int


class Record:
    """All requests, steps and engines.

    ``times_to_first``, ``means`` (the mean gap between tokens) and ``durations``: of each answered request, in seconds;
    a request with one token has no mean. ``gaps``: how often two outputs of a request were so many microseconds apart.
    ``move_gaps``: the gaps in which requests moved. ``failed_migrations``: those that moved nothing.
    ``costs``: for each batch size the number of its steps and their real seconds. ``rejected``: by error code.
    ``attained``: the requests within ``slo``. ``ended``: the virtual end. ``real_seconds``: of the whole replay.
    """

    def __init__(self, slo: Slo | None = None) -> None:
        self.slo = slo
        self.instances: list[InstanceRecord] = []
        self.requests = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.rejected: Counter[str] = Counter()
        self.attained = 0
        self.times_to_first = array("d")
        self.means = array("d")
        self.durations = array("d")
        self.gaps: Counter[int] = Counter()
        self.costs: dict[int, list[float]] = {}
        self.moments = Moments()
        self.swaps = 0
        self.move_gaps = array("d")
        self.failed_migrations = 0
        self.ended = 0.0
        self.real_seconds = 0.0

    def reject(self, code: str) -> None:
        """Count a request that was refused: by the gateway, or by its engine."""
        self.rejected[code] += 1

    def note_cost(self, batch: int, steps: int, seconds: float) -> None:
        """Add the real seconds of ``steps`` steps with ``batch`` requests."""
        cost = self.costs.get(batch)
        if cost is None:
            self.costs[batch] = [steps, seconds]
        else:
            cost[0] += steps
            cost[1] += seconds

    def finish(self, request: RequestRecord) -> None:
        """Count a request whose answer is whole."""
        first, duration = request.first_token - request.arrival, request.last_token - request.arrival
        self.requests += 1
        self.input_tokens += request.input_length
        self.cached_tokens += request.cached_tokens
        self.output_tokens += request.output_tokens
        self.times_to_first.append(first)
        self.durations.append(duration)
        mean = 0.0
        if request.output_tokens > 1:
            mean = (request.last_token - request.first_token) / (request.output_tokens - 1)
            self.means.append(mean)
        if self.slo is not None and self.slo.is_met(first, mean, duration):
            self.attained += 1


class Moments:
    """Samples of the state over time: fewer and fewer of them, so that their number is bounded."""

    def __init__(self) -> None:
        self.samples: list[Moment] = []
        self.due = 0.0
        self._every = 0.05

    def add(self, moment: Moment) -> None:
        """Add a sample. The next one is ``due`` later."""
        self.samples.append(moment)
        if len(self.samples) >= _SAMPLES:
            self._every *= 2
            del self.samples[1::2]
        self.due = moment.time + self._every
