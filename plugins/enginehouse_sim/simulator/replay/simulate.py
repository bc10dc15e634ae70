"""Replays a trace on one engine, without a gateway."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.replay.engine_owner import EngineOwner, ReplayPlace
from enginehouse_sim.simulator.replay.figures.record import AnswerRecord, Record
from enginehouse_sim.simulator.replay.figures.slo import Slo
from enginehouse_sim.simulator.replay.garbage import rare_collections
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine, moment_of
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

TOO_LONG = "invalid_request"
"""The error code of a request that its engine refuses."""


class Replay(EngineOwner):
    """Adds requests to one engine at their arrivals. Each step takes as long as the core's step model says.

    ``record`` is complete after ``run``, or when ``steps`` is exhausted.
    """

    def __init__(self, trace: Iterable[TraceRequest], core: EngineCore, slo: Slo | None = None) -> None:
        self.record = Record(slo)
        self._arrivals = enumerate(trace)
        self._next = next(self._arrivals, None)
        self._engine = PlayedEngine("engine", core, self.record, self)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
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
            if self._next is not None and (not engine.busy or self._next[1].arrival <= engine.now):
                self._admit(*self._next)
                self._next = next(self._arrivals, None)
                continue
            engine.begin_step()
            if looks_ahead:
                engine.look_ahead()
                arrival = self._next[1].arrival if self._next is not None else math.inf
                self.place = ReplayPlace(min(arrival, moments.due), -1)
                engine.catch_up()
            yield engine.end_step()
            if engine.now >= moments.due:
                moments.add(moment_of(engine.now, [engine], 0))
        self.record.ended = engine.now
        engine.close()

    def ended(self, answer: AnswerRecord) -> None:
        self.record.finish(answer)

    def _admit(self, number: int, asked: TraceRequest) -> None:
        request = AnswerRecord(asked.arrival, asked.input_length)
        if not self._engine.add(asked, number, request, asked.arrival):
            self.record.reject(TOO_LONG)
