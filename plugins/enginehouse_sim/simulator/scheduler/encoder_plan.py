"""The multimodal inputs that a step encodes, and the tokens that it can compute without the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.images import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.encoder_cache import EncoderCache


class EncoderPlan(NamedTuple):
    """How many tokens are possible, which inputs to encode for them, and which others are equal to one of these."""

    num_new_tokens: int
    to_encode: Sequence[int] = ()
    duplicates: Sequence[int] = ()
    cost: int = 0


def plan_encoder(
    cache: EncoderCache,
    constants: SchedulerConstants,
    request: RequestState,
    num_computed_tokens: int,
    num_new_tokens: int,
    budget: int,
) -> EncoderPlan:
    """Stop before the first input that exceeds ``budget`` or the cache; ``cost`` is in tokens.

    Inputs that are encoded already are held for the request at once, even if its step fails later, as in vLLM.
    """
    if not request.mm_inputs or not num_new_tokens:
        return EncoderPlan(num_new_tokens)
    to_encode: dict[str, int] = {}
    duplicates: list[int] = []
    cost = 0
    first = num_computed_tokens + constants.draft_rules.reads_ahead
    end = first + num_new_tokens
    for index, source in enumerate(request.mm_inputs):
        if source.offset >= end:
            break
        if source.offset + source.length <= num_computed_tokens:
            continue
        if constants.disable_chunked_mm_input and _is_split(source, num_computed_tokens, num_new_tokens):
            num_new_tokens = max(0, source.offset - first)
            break
        if source.identifier in to_encode:
            duplicates.append(index)
            continue
        if cache.share(request, index):
            continue
        if source.length > budget - cost or not cache.make_room(cost + source.length):
            num_new_tokens = max(0, source.offset - first)
            break
        to_encode[source.identifier] = index
        cost += source.length
    return EncoderPlan(num_new_tokens, tuple(to_encode.values()), duplicates, cost)


def _is_split(source: MultiModalInput, computed: int, num_new_tokens: int) -> bool:
    """Whether the step would compute the beginning of an input and leave its end to the next one."""
    return computed < source.offset and computed + num_new_tokens < source.offset + source.length
