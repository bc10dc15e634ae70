"""Limits on the tokens of one request in a step."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.state import SchedulerState


def longest_input(constants: SchedulerConstants, request: RequestState) -> int:
    """The most tokens that the model computes for a request; the last token of an answer needs no computing."""
    return constants.max_model_len if request.pooling else constants.max_model_len - 1


def under_threshold(state: SchedulerState, num_new_tokens: int) -> int:
    """``num_new_tokens``, cut to the long-prefill threshold unless the request is alone."""
    constants = state.constants
    threshold = constants.long_prefill_token_threshold
    if not 0 < threshold < num_new_tokens:
        return num_new_tokens
    is_alone = len(state.requests) == 1
    return num_new_tokens if is_alone else threshold
