"""The parts of one simulated engine, for its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import InvalidRequest, ModelNotFound
from enginehouse_sim.simulator.core.engine_core import CoreStep
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, EngineClock
from enginehouse_sim.simulator.server.faults import ActiveFaults
from enginehouse_sim.simulator.server.instance_status import ConstantStatus, StatusReporter
from enginehouse_sim.simulator.server.metrics import Metrics
from enginehouse_sim.simulator.server.runs import Run
from enginehouse_sim.simulator.server.settings import Settings
from enginehouse_sim.simulator.server.work import EncodedPrompt, Work

DEFAULT_MAX_TOKENS = 16
"""The tokens of an answer without ``max_tokens`` that does not end by itself: OpenAI's default for completions."""


class Simulation:
    """A simulated engine with everything around it, which vLLM keeps in ``app.state``."""

    def __init__(self, settings: Settings, engine: BatchingEngine, clock: EngineClock) -> None:
        self.settings = settings
        self.engine = engine
        self.clock = clock
        self.metrics = metrics = Metrics(engine, settings.models[0])
        self.status = StatusReporter(_metadata(settings), engine)
        self.faults = ActiveFaults(clock)

        def on_step(result: CoreStep) -> None:
            metrics.on_step(result)
            self.status.on_step(result)

        engine.on_step = on_step

    def run(self, work: Work, *, streams: bool = False) -> Run:
        """A run of ``work``, which starts in a ``with`` block. ``streams``: its answers are read piece by piece."""
        return Run(work, self.engine, self.metrics, self.clock, streams=streams)

    def lora(self, model: str) -> str | None:
        """The adapter that ``model`` names, ``None`` for a base model. Raises ``ModelNotFound``."""
        if model in self.settings.models:
            return None
        if model in self.settings.loras:
            return model
        raise ModelNotFound(model)

    def max_tokens(self, prompts: Sequence[EncodedPrompt], wanted: int | None, *, ends: bool = False) -> int:
        """The most tokens of each answer: ``wanted``, or a default.

        If the answers end by themselves (``ends``), the default is all the room after the longest prompt; else it is
        ``DEFAULT_MAX_TOKENS``, or the room if that is less. Raises ``InvalidRequest`` if the room is too small.
        """
        length = self.settings.context_length
        longest = max(len(prompt.token_ids) for prompt in prompts)
        least = 1 if wanted is None else wanted
        if least > length - longest:
            raise InvalidRequest(
                f"This model's maximum context length is {length} tokens, and the request asks for {longest} of input "
                f"and {least} of output: shorten the input or lower max_tokens"
            )
        if wanted is not None:
            return wanted
        return length - longest if ends else min(DEFAULT_MAX_TOKENS, length - longest)

    @property
    def answers_end(self) -> bool:
        """Whether answers end by themselves."""
        return self.settings.core.mean_length is not None


def _metadata(settings: Settings) -> ConstantStatus:
    return ConstantStatus(
        instance_id=settings.instance_id,
        instance_type=settings.role,
        node_id=settings.node,
        unit_id=settings.unit,
        block_size=settings.core.constants.block_size,
        max_num_batched_tokens=settings.core.constants.max_num_batched_tokens,
    )
