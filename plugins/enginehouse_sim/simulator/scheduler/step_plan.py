"""A step while it is planned."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.domain.outputs import NewRequestData
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import CachedRequestData
from enginehouse_sim.simulator.scheduler.encoder_cache import EncoderCache
from enginehouse_sim.simulator.scheduler.encoder_plan import EncoderPlan


class StepPlan:
    """The remaining budgets, and the scheduled requests, in the order of ``requests`` and ``num_scheduled_tokens``.

    ``draft_slots``: the part of the token budget that each request takes besides its tokens. ``prefills``: whether a
    running request computes a part of its prompt.
    """

    __slots__ = (
        "cached",
        "draft_slots",
        "encoder_budget",
        "encoder_inputs",
        "new",
        "num_scheduled_tokens",
        "preempted",
        "prefills",
        "requests",
        "resumed",
        "spec_tokens",
        "step",
        "token_budget",
    )

    def __init__(self, step: int, token_budget: int, encoder_budget: int, draft_slots: int = 0) -> None:
        self.step = step
        self.token_budget = token_budget
        self.encoder_budget = encoder_budget
        self.draft_slots = draft_slots
        self.prefills = False
        self.requests: list[RequestState] = []
        self.num_scheduled_tokens: dict[str, int] = {}
        self.cached: list[CachedRequestData] = []
        self.new: list[NewRequestData] = []
        self.resumed: list[CachedRequestData] = []
        self.preempted: list[str] = []
        self.spec_tokens: dict[str, Sequence[int]] = {}
        self.encoder_inputs: dict[str, tuple[int, ...]] = {}

    @property
    def available(self) -> int:
        """The most tokens that one more request can get."""
        return self.token_budget - self.draft_slots

    def add(self, request: RequestState, num_tokens: int) -> None:
        """Give the request ``num_tokens`` of this step."""
        self.requests.append(request)
        self.num_scheduled_tokens[request.request_id] = num_tokens
        self.token_budget -= num_tokens + self.draft_slots

    def add_encoder_inputs(self, cache: EncoderCache, request: RequestState, encoder: EncoderPlan) -> None:
        """Encode the request's inputs in this step."""
        for index in encoder.to_encode:
            cache.hold(request, index)
        for index in encoder.duplicates:
            cache.share(request, index)
        if encoder.to_encode:
            self.encoder_inputs[request.request_id] = tuple(encoder.to_encode)
            self.encoder_budget -= encoder.cost

    def remove(self, request: RequestState) -> None:
        """Take the request out of the step, if it is in it."""
        request_id = request.request_id
        num_tokens = self.num_scheduled_tokens.pop(request_id, 0)
        if not num_tokens:
            return
        self.token_budget += num_tokens + self.draft_slots
        self.requests.remove(request)
        self.cached[:] = [data for data in self.cached if data.request_id != request_id]
        self.spec_tokens.pop(request_id, None)
        for index in self.encoder_inputs.pop(request_id, ()):
            self.encoder_budget += request.mm_inputs[index].length
