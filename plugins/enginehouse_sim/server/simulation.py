"""All parts of one simulated engine, for its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import InvalidRequest, ModelNotFound
from enginehouse_sim.clock import Clock
from enginehouse_sim.core.engine_core import StepResult
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.faults.board import FaultBoard
from enginehouse_sim.server.generation import Generator
from enginehouse_sim.server.instance_status import InstanceMetadata, StatusBoard
from enginehouse_sim.server.metrics import Metrics
from enginehouse_sim.server.metrics_page import MetricsPage
from enginehouse_sim.server.request_log import RequestLog
from enginehouse_sim.server.settings import Settings
from enginehouse_sim.server.work import Prompt

DEFAULT_MAX_TOKENS = 16
"""The tokens of an answer that has no end and was given none."""


class Simulation:
    """A simulated engine, with everything around it."""

    def __init__(self, settings: Settings, engine: BatchingEngine, clock: Clock) -> None:
        self.settings = settings
        self.engine = engine
        self.clock = clock
        metrics = Metrics()
        self.metrics_page = MetricsPage(settings, metrics, engine)
        self.generator = Generator(engine, metrics, clock)
        self.status = StatusBoard(_metadata(settings), engine)
        self.faults = FaultBoard(clock)
        self.requests = RequestLog()

        def on_step(result: StepResult) -> None:
            metrics.step(result)
            self.status.step(result)

        engine.on_step = on_step

    def lora(self, model: str) -> str | None:
        """The adapter that ``model`` stands for, ``None`` for a model itself. Raises ``ModelNotFound``."""
        if model in self.settings.models:
            return None
        if model in self.settings.loras:
            return model
        raise ModelNotFound(model)

    def max_tokens(self, prompts: Sequence[Prompt], wanted: int | None, *, ends: bool = False) -> int:
        """The most tokens of each answer: ``wanted``, or what is usual if that is ``None``.

        That is all the room behind the longest of ``prompts`` for answers that ``ends`` by themselves, else sixteen.
        Raises ``InvalidRequest`` when there is not room enough.
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


def _metadata(settings: Settings) -> InstanceMetadata:
    return InstanceMetadata(
        instance_id=settings.instance_id,
        instance_type=settings.role,
        node_id=settings.node,
        unit_id=settings.unit,
        block_size=settings.core.constants.block_size,
        max_num_batched_tokens=settings.core.constants.max_num_batched_tokens,
    )
