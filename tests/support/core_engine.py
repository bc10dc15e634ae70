"""The simulated engine's core, driven step by step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.text import TextSampler, text_of
from tests.support.asked import new_state


class StepByStepEngine:
    """A core under the test's hands: blocks of 4 tokens, 100 tokens a step, a second for each step."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.state = core.scheduler.state
        self.tokens: dict[str, list[int]] = {}
        self.preempted: list[str] = []
        self._names = (chr(ord("a") + number) for number in count())
        self._starts = count(1000, 1000)

    def ask(self, prompt: int, max_tokens: int, **fields: Any) -> RequestState:
        start = next(self._starts)
        request = new_state(
            request_id=next(self._names),
            prompt_token_ids=list(range(start, start + prompt)),
            max_tokens=max_tokens,
            ignore_eos=True,
            arrival_time=self.core.now,
            **fields,
        )
        self.core.scheduler.add_request(request)
        self.tokens[request.request_id] = []
        return request

    def step(self) -> SchedulerOutput:
        result = self.core.step()
        self.preempted += result.scheduled.preempted_req_ids
        for output in result.outputs:
            self.tokens[output.request_id] += output.new_token_ids
        return result.scheduled

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.step()

    def until(self, holds: Callable[[], object], most: int = 2000) -> None:
        for _ in range(most):
            if holds():
                return
            self.step()
        raise AssertionError("it never came to pass")

    def finish(self) -> None:
        self.until(lambda: not self.state.requests)

    def answer(self, request: RequestState) -> list[int]:
        """What the request would be answered if it were alone."""
        place = TextSampler(0, text_of(request.prompt_token_ids))
        return [place.next() for _ in range(request.max_tokens)]

    @property
    def running(self) -> list[str]:
        return [request.request_id for request in self.state.running]


NewEngine = Callable[..., StepByStepEngine]
