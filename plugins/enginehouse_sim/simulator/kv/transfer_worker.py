"""The worker side of the KV connector: carries out loads and saves, and reports completed transfers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput
from enginehouse_sim.simulator.kv.external_store import BlockStore


class KvLoad(msgspec.Struct, frozen=True):
    """A load for one request; with ``load_async`` the step does not wait for it."""

    request_id: str
    num_tokens: int
    seconds: float
    load_async: bool


class StepTransfers(msgspec.Struct, frozen=True):
    """The transfers of one step: loads that begin with it, and the filled blocks to save."""

    loads: Sequence[KvLoad] = ()
    saves: Sequence[Sequence[int]] = ()


class TransferWorker:
    """Carries out the ``StepTransfers`` of each step. Times are in seconds.

    ``finished_sending`` returns the requests whose kept blocks are no longer needed.
    """

    def __init__(self, store: BlockStore | None = None, finished_sending: Callable[[], Sequence[str]] = tuple) -> None:
        self._store = store
        self._finished_sending = finished_sending
        self._arrivals: list[tuple[float, int, str]] = []
        self._num_loads = 0

    @property
    def next_arrival(self) -> float | None:
        """When the next load completes. An engine without other work waits until then."""
        return self._arrivals[0][0] if self._arrivals else None

    def begin_step(self, transfers: StepTransfers, now: float) -> float:
        """Begin the loads. Return the seconds by which loads within the step delay it, one after the other."""
        stall = 0.0
        for load in transfers.loads:
            if load.load_async:
                self._num_loads += 1
                heappush(self._arrivals, (now + load.seconds, self._num_loads, load.request_id))
            else:
                stall += load.seconds
        return stall

    def end_loads(self, request_ids: Sequence[str]) -> None:
        """Report these loads with the next step, because they have failed."""
        self._arrivals = [
            (0.0 if request_id in request_ids else arrives_at, number, request_id)
            for arrives_at, number, request_id in self._arrivals
        ]
        heapify(self._arrivals)

    def end_step(self, transfers: StepTransfers, now: float, output: ModelRunnerOutput) -> None:
        """Save the step's blocks, and name the transfers completed by ``now`` in ``output``."""
        if self._store is not None:
            for hashes in transfers.saves:
                self._store.put(hashes)
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= now:
            arrived.append(heappop(self._arrivals)[2])
        output.kv_connector_finished_recving = arrived
        output.kv_connector_finished_sending = tuple(self._finished_sending())
