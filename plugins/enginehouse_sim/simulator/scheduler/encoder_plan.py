"""Which multimodal inputs a step encodes, and how many tokens it can compute without the others."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.encoder_cache import EncoderCache


class EncoderPlan(NamedTuple):
    """How many tokens are possible, which inputs to encode for them, and which others have encoded already."""

    num_new_tokens: int
    to_encode: tuple[int, ...] = ()
    to_share: tuple[int, ...] = ()
    cost: int = 0


def plan_encoder(
    cache: EncoderCache,
    constants: SchedulerConstants,
    request: RequestState,
    num_computed_tokens: int,
    num_new_tokens: int,
    budget: int,
) -> EncoderPlan:
    """Stop before the first input that exceeds ``budget`` or the cache; ``cost`` is in tokens."""
    if not request.mm_inputs:
        return EncoderPlan(num_new_tokens)
    to_encode: list[int] = []
    to_share: list[int] = []
    planned: set[str] = set()
    cost = 0
    for index, source in enumerate(request.mm_inputs):
        end = num_computed_tokens + num_new_tokens
        if source.offset >= end:
            break
        if source.offset + source.length <= num_computed_tokens or cache.holds(request, index):
            continue
        if cache.has(source.identifier) or source.identifier in planned:
            to_share.append(index)
            continue
        splits = constants.disable_chunked_mm_input and end < source.offset + source.length
        if splits and num_computed_tokens < source.offset:
            num_new_tokens = source.offset - num_computed_tokens
            break
        if cost + source.length > min(budget, cache.num_free):
            num_new_tokens = max(0, source.offset - num_computed_tokens)
            break
        to_encode.append(index)
        planned.add(source.identifier)
        cost += source.length
    return EncoderPlan(num_new_tokens, tuple(to_encode), tuple(to_share), cost)
