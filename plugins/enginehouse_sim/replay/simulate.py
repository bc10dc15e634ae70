"""A trace, request by request, through an engine whose time is only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

from enginehouse_sim.core.engine_core import EngineCore
from enginehouse_sim.replay.record import Record, RequestRecord
from enginehouse_sim.replay.trace import TraceRequest, prompt_of
from enginehouse_sim.scheduler.output import SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState


class Replay:
    """Drives ``engine``: requests come when the trace says so, and each step takes as long as the engine says.

    ``record`` is complete when ``steps`` has come to its end.
    """

    def __init__(self, trace: Sequence[TraceRequest], engine: EngineCore) -> None:
        self.record = Record()
        self._trace = trace
        self._engine = engine
        self._came = 0
        self._live: dict[str, RequestRecord] = {}

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._engine.now

    @property
    def total(self) -> int:
        """The requests of the trace."""
        return len(self._trace)

    @property
    def finished(self) -> int:
        """How many of them are done."""
        return self._came - len(self._live)

    def run(self) -> Record:
        """Run it to its end."""
        for _ in self.steps():
            pass
        return self.record

    def steps(self) -> Iterator[SchedulerOutput]:
        """Every step, as it is planned."""
        engine, record = self._engine, self.record
        while self._came < len(self._trace) or self._live:
            if not self._live:
                engine.now = max(engine.now, self._trace[self._came].arrival)
            self._admit()
            began = perf_counter()
            step = engine.step()
            wall = perf_counter() - began
            record.step(step.scheduled, engine.now, wall)
            for outputs in step.outputs.values():
                for output in outputs.outputs:
                    request = self._live[output.request_id]
                    request.got(len(output.new_token_ids), output.num_cached_tokens, engine.now, record)
                    if output.finish_reason is not None:
                        del self._live[output.request_id]
            yield step.scheduled
        record.ended = engine.now

    def _admit(self) -> None:
        """Let in what has come by now."""
        while self._came < len(self._trace) and self._trace[self._came].arrival <= self._engine.now:
            asked = self._trace[self._came]
            name = str(self._came)
            self._live[name] = self.record.begin(asked)
            self._engine.add_request(
                RequestState(
                    request_id=name,
                    prompt_token_ids=prompt_of(asked, self._came),
                    max_tokens=max(1, asked.output_length),
                    ignore_eos=True,
                    arrival_time=asked.arrival,
                )
            )
            self._came += 1
