"""Where the requests of a replay come from: a file, or a description of made-up traffic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from enginehouse_sim.simulator.replay.traces.reader import Trace
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest
from enginehouse_sim.simulator.replay.traces.workload import Workload

OnProgress = Callable[[float], None]
"""Gets the share of the requests that have been read, 0 to 1."""
_TOLD_EVERY = 256


class TraceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to read: at most ``limit`` requests, by default all. By default, the fields decide the ``format``.

    ``shuffle``: 0 for the trace as it is; else the seed by which the gaps between its arrivals change places.
    """

    path: Path
    limit: int | None = None
    format: str | None = None
    shuffle: int = 0

    def open(self) -> Trace:
        return Trace(self.path, self.limit, self.format or "")

    def requests(self, on_progress: OnProgress) -> Iterator[TraceRequest]:
        """Read the requests. Raises ``TraceError``."""
        requests = self.open().watched(on_progress)
        return iter(_shuffled(list(requests), self.shuffle)) if self.shuffle else requests


class MadeUpTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """``number`` requests of a workload."""

    workload: Workload
    number: int

    def requests(self, on_progress: OnProgress) -> Iterator[TraceRequest]:
        """Make the requests. Raises ``ConfigError``."""
        for made, request in enumerate(self.workload.requests(self.number), 1):
            yield request
            if made % _TOLD_EVERY == 0:
                on_progress(made / self.number)
        on_progress(1.0)


Traffic = TraceFile | MadeUpTraffic


def reseeded(traffic: Traffic, seed: int) -> Traffic:
    """The same kind of traffic by another seed. Traffic by seed 0 is ``traffic`` itself."""
    if not seed:
        return traffic
    if isinstance(traffic, TraceFile):
        return msgspec.structs.replace(traffic, shuffle=seed)
    workload = msgspec.structs.replace(traffic.workload, seed=traffic.workload.seed + seed)
    return msgspec.structs.replace(traffic, workload=workload)


def _shuffled(requests: list[TraceRequest], seed: int) -> list[TraceRequest]:
    """The same requests in the same order, after gaps in another order."""
    gaps = [later.arrival - sooner.arrival for sooner, later in pairwise(requests)]
    random.Random(seed).shuffle(gaps)
    arrivals = accumulate(gaps, initial=0.0)
    return [msgspec.structs.replace(request, arrival=at) for request, at in zip(requests, arrivals, strict=True)]
