"""Drives an engine core with a trace, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.replay.record import Record, RequestRecord
from enginehouse_sim.simulator.replay.trace import TraceRequest, prompt_of


class Replay:
    """Adds requests to ``engine`` at their arrival; each step takes as long as the engine says.

    ``record`` is complete when ``steps`` is exhausted.
    """

    def __init__(self, trace: Sequence[TraceRequest], engine: EngineCore) -> None:
        self.record = Record()
        self._trace = trace
        self._engine = engine
        self._arrived = 0
        self._live: dict[str, RequestRecord] = {}

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._engine.now

    @property
    def total(self) -> int:
        """The number of requests in the trace."""
        return len(self._trace)

    @property
    def finished(self) -> int:
        """The number of finished requests."""
        return self._arrived - len(self._live)

    def run(self) -> Record:
        """Run the whole trace."""
        for _ in self.steps():
            pass
        return self.record

    def steps(self) -> Iterator[SchedulerOutput]:
        """Make the steps, and yield the plan of each."""
        engine, record = self._engine, self.record
        while self._arrived < len(self._trace) or self._live:
            if not self._live:
                engine.now = max(engine.now, self._trace[self._arrived].arrival)
            self._admit()
            began = perf_counter()
            step = engine.step()
            wall = perf_counter() - began
            record.add_step(step.scheduled, engine.now, wall)
            for outputs in step.outputs.values():
                for output in outputs.outputs:
                    request = self._live[output.request_id]
                    request.add_tokens(len(output.new_token_ids), output.num_cached_tokens, engine.now, record)
                    if output.finish_reason is not None:
                        del self._live[output.request_id]
            yield step.scheduled
        record.ended = engine.now

    def _admit(self) -> None:
        """Add the requests that have arrived."""
        while self._arrived < len(self._trace) and self._trace[self._arrived].arrival <= self._engine.now:
            asked = self._trace[self._arrived]
            name = str(self._arrived)
            self._live[name] = self.record.add_request(asked)
            self._engine.add_request(
                RequestState(
                    request_id=name,
                    prompt_token_ids=prompt_of(asked, self._arrived),
                    max_tokens=max(1, asked.output_length),
                    ignore_eos=True,
                    arrival_time=asked.arrival,
                )
            )
            self._arrived += 1
