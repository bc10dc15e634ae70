"""All parts of one simulated engine, for its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import InvalidRequest, ModelNotFound
from enginehouse_sim.clock import Clock
from enginehouse_sim.server.engine import Engine, Work
from enginehouse_sim.server.faults.board import FaultBoard
from enginehouse_sim.server.generation import Generator
from enginehouse_sim.server.metrics import Metrics
from enginehouse_sim.server.request_log import RequestLog
from enginehouse_sim.server.settings import Settings
from enginehouse_sim.text import count_tokens

_DEFAULT_MAX_TOKENS = 16


class Simulation:
    """A simulated engine, whichever core it has."""

    def __init__(self, settings: Settings, engine: Engine, clock: Clock) -> None:
        self.settings = settings
        self.engine = engine
        self.clock = clock
        self.metrics = Metrics(settings.models[0])
        self.generator = Generator(engine, self.metrics, clock)
        self.faults = FaultBoard(clock)
        self.requests = RequestLog()

    def work(self, model: str, prompts: Sequence[str], max_tokens: int | None = None, choices: int = 1) -> Work:
        """What a request asks of the engine.

        Raises ``ModelNotFound``, and ``InvalidRequest`` when a prompt and its answer do not fit into the context.
        """
        if model not in self.settings.models:
            raise ModelNotFound(model)
        lengths = [count_tokens(prompt) for prompt in prompts]
        longest, wanted = max(lengths), 1 if max_tokens is None else max_tokens
        room = self.settings.context_length - longest
        if wanted > room:
            raise InvalidRequest(
                f"This model's maximum context length is {self.settings.context_length} tokens, and the request asks "
                f"for {longest} of input and {wanted} of output: shorten the input or lower max_tokens"
            )
        return Work(
            prompts=prompts,
            prompt_tokens=sum(lengths),
            max_tokens=min(_DEFAULT_MAX_TOKENS, room) if max_tokens is None else max_tokens,
            choices=choices,
        )
