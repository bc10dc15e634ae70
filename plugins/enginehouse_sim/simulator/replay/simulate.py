"""Replays a trace on one engine, without a gateway."""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.replay.answer import AnswerRecord
from enginehouse_sim.simulator.replay.played_engine import EngineOwner, PlayedEngine, moment_of
from enginehouse_sim.simulator.replay.report import Record, Slo
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.steps.profile import NOTHING_OUTSIDE, OutsideCosts

_ALLOCATIONS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely: a replay makes few cycles, and has many objects to examine.

    It never examines what was there before, such as all modules.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


TOO_LONG = "invalid_request"
"""The error code of a request that its engine refuses."""


class Replay(EngineOwner):
    """Adds requests to one engine. Each step takes as long as the core's step model says.

    ``outside``: how long requests take from their arrival to the engine.

    ``record`` is complete after ``run``, or when ``steps`` is exhausted.
    """

    def __init__(
        self,
        trace: Iterable[TraceRequest],
        core: EngineCore,
        slo: Slo | None = None,
        outside: OutsideCosts = NOTHING_OUTSIDE,
    ) -> None:
        super().__init__()
        self.record = Record(slo)
        self._arrivals = entering(trace, outside)
        self._next = next(self._arrivals, None)
        self._engine = PlayedEngine("engine", core, self.record, self)

    @property
    def now(self) -> float:
        return self._engine.now

    def run(self) -> Record:
        """Run the whole trace."""
        with rare_collections():
            for _ in self._steps(looks_ahead=True):
                pass
        return self.record

    def steps(self) -> Iterator[SchedulerOutput]:
        """Make the steps one by one, and yield the plan of each."""
        return self._steps(looks_ahead=False)

    def _steps(self, *, looks_ahead: bool) -> Iterator[SchedulerOutput]:
        """Make the steps, and yield their plans; with ``looks_ahead``, not those of steady steps."""
        engine, moments = self._engine, self.record.moments
        while self._next is not None or engine.busy:
            if self._next is not None and (not engine.busy or self._next[0] <= engine.now):
                self._admit(*self._next)
                self._next = next(self._arrivals, None)
                continue
            engine.begin_step()
            if looks_ahead:
                engine.look_ahead()
                arrival = self._next[0] if self._next is not None else math.inf
                self.place = (min(arrival, moments.due), -1.0)
                engine.catch_up()
            yield engine.end_step()
            if engine.now >= moments.due:
                moments.add(engine.now, moment_of([engine]))
        self.record.ended = engine.now
        engine.close()

    def ended(self, answer: AnswerRecord) -> None:
        self.record.finish(answer)

    def _admit(self, at: float, number: int, asked: TraceRequest) -> None:
        request = AnswerRecord(asked.arrival, asked.input_length)
        if not self._engine.add(asked, number, request, at):
            self.record.reject(TOO_LONG)


def entering(trace: Iterable[TraceRequest], outside: OutsideCosts) -> Iterator[tuple[float, int, TraceRequest]]:
    """The requests in the order in which the engine gets them: the time, the number in the trace, and the request."""
    waiting: list[tuple[float, int, TraceRequest]] = []
    least = outside.seconds(0)
    for number, request in enumerate(trace):
        while waiting and waiting[0][0] <= request.arrival + least:
            yield heapq.heappop(waiting)
        heapq.heappush(waiting, (request.arrival + outside.seconds(request.input_length), number, request))
    while waiting:
        yield heapq.heappop(waiting)
