"""A step while it is being planned."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.scheduler.encoder_cache import EncoderCache
from enginehouse_sim.scheduler.encoder_plan import EncoderPlan
from enginehouse_sim.scheduler.output import CachedRequestData, NewRequestData
from enginehouse_sim.scheduler.request import RequestState


class StepPlan:
    """Budgets that shrink and lists that grow; ``requests`` and ``num_scheduled_tokens`` have the same order."""

    __slots__ = (
        "cached",
        "encoder_budget",
        "encoder_inputs",
        "new",
        "num_scheduled_tokens",
        "preempted",
        "requests",
        "resumed",
        "spec_tokens",
        "step",
        "token_budget",
    )

    def __init__(self, step: int, token_budget: int, encoder_budget: int) -> None:
        self.step = step
        self.token_budget = token_budget
        self.encoder_budget = encoder_budget
        self.requests: list[RequestState] = []
        self.num_scheduled_tokens: dict[str, int] = {}
        self.cached: list[CachedRequestData] = []
        self.new: list[NewRequestData] = []
        self.resumed: list[CachedRequestData] = []
        self.preempted: list[str] = []
        self.spec_tokens: dict[str, Sequence[int]] = {}
        self.encoder_inputs: dict[str, tuple[int, ...]] = {}

    def take(self, request: RequestState, num_tokens: int) -> None:
        """The request gets ``num_tokens`` of this step."""
        self.requests.append(request)
        self.num_scheduled_tokens[request.request_id] = num_tokens
        self.token_budget -= num_tokens

    def take_encoder(self, cache: EncoderCache, request: RequestState, encoder: EncoderPlan) -> None:
        """The request's inputs are encoded in this step, or kept from another request."""
        for index in (*encoder.to_encode, *encoder.to_share):
            cache.hold(request, index)
        if encoder.to_encode:
            self.encoder_inputs[request.request_id] = encoder.to_encode
            self.encoder_budget -= encoder.cost

    def give_back(self, request: RequestState) -> None:
        """The request has no part in this step after all, if it had any."""
        request_id = request.request_id
        num_tokens = self.num_scheduled_tokens.pop(request_id, 0)
        if not num_tokens:
            return
        self.token_budget += num_tokens
        self.requests.remove(request)
        self.cached[:] = [data for data in self.cached if data.request_id != request_id]
        self.spec_tokens.pop(request_id, None)
        for index in self.encoder_inputs.pop(request_id, ()):
            self.encoder_budget += request.mm_inputs[index].length
