"""Steps of the engine core: in flight, and completed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutputs, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.steps.load import StepLoad


class StepResult(msgspec.Struct, frozen=True, gc=False):
    """A completed step: the plan, the outputs by ``client_index``, its duration, and its load."""

    scheduled: SchedulerOutput
    outputs: Mapping[int, EngineCoreOutputs]
    seconds: float
    load: StepLoad


class InFlightStep(msgspec.Struct, frozen=True):
    """A step that has begun: its result is known to the core alone. ``ends_at``: on the core's clock."""

    scheduled: SchedulerOutput
    result: ModelRunnerOutput
    ends_at: float
    load: StepLoad

    def later(self, seconds: float) -> InFlightStep:
        """The same step, ending so much later."""
        return msgspec.structs.replace(self, ends_at=self.ends_at + seconds)
