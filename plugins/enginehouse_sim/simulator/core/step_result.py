"""Steps of the engine core: in flight, and completed."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.steps.load import StepLoad


class StepResult:
    """A completed step: the plan, the outputs, its duration, and its load."""

    __slots__ = ("load", "outputs", "scheduled", "seconds")

    def __init__(
        self,
        scheduled: SchedulerOutput,
        outputs: Sequence[EngineCoreOutput],
        seconds: float,
        load: StepLoad,
    ) -> None:
        self.scheduled = scheduled
        self.outputs = outputs
        self.seconds = seconds
        self.load = load


class InFlightStep:
    """A step that has begun: its result is known to the core alone. ``ends_at``: on the core's clock."""

    __slots__ = ("ends_at", "load", "result", "scheduled")

    def __init__(
        self,
        scheduled: SchedulerOutput,
        result: ModelRunnerOutput,
        ends_at: float,
        load: StepLoad,
    ) -> None:
        self.scheduled = scheduled
        self.result = result
        self.ends_at = ends_at
        self.load = load

    def later(self, seconds: float) -> InFlightStep:
        """The same step, ending so much later."""
        return InFlightStep(self.scheduled, self.result, self.ends_at + seconds, self.load)
