"""The model runner's side of a connector: moves keys and values during and between steps, and says what arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import msgspec

from enginehouse_sim.kv.external_store import ExternalStore
from enginehouse_sim.scheduler.output import ModelRunnerOutput


class KvLoad(msgspec.Struct, frozen=True):
    """Keys and values on the way to one request; ``load_async``: the step does not wait for them."""

    request_id: str
    num_tokens: int
    seconds: float
    load_async: bool


class StepTransfers(msgspec.Struct, frozen=True):
    """What a step has to move: loads that begin with it, and the blocks that it fills, for the store."""

    loads: Sequence[KvLoad] = ()
    saves: Sequence[Sequence[int]] = ()


class TransferWorker:
    """Carries out each step's ``StepTransfers``. ``finished_sending``: whose blocks nobody else needs any more."""

    def __init__(
        self, store: ExternalStore | None = None, finished_sending: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self._store = store
        self._finished_sending = finished_sending
        self._arrivals: list[tuple[float, int, str]] = []
        self._num_loads = 0

    @property
    def next_arrival(self) -> float | None:
        """When the next load is there; an engine without anything else to do waits until then."""
        return self._arrivals[0][0] if self._arrivals else None

    def begin_step(self, transfers: StepTransfers, now: float) -> float:
        """The seconds by which loads within the step make it longer, one after the other."""
        stall = 0.0
        for load in transfers.loads:
            if load.load_async:
                self._num_loads += 1
                heappush(self._arrivals, (now + load.seconds, self._num_loads, load.request_id))
            else:
                stall += load.seconds
        return stall

    def end_step(self, transfers: StepTransfers, now: float, output: ModelRunnerOutput) -> None:
        """The step's blocks are in the store, and ``output`` names the requests whose transfers are over by ``now``."""
        if self._store is not None:
            for hashes in transfers.saves:
                self._store.put(hashes)
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= now:
            arrived.append(heappop(self._arrivals)[2])
        output.kv_connector_finished_recving = arrived
        output.kv_connector_finished_sending = tuple(self._finished_sending())
