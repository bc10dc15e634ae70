"""Copies the KV of a request while it runs, in stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.steps.transfer import KvTransfer

_STAGES = 3
"""The most stages while the request runs, as in Llumnix."""
_LAST_STAGE_BLOCKS = 16
"""The most blocks of the last stage, as in Llumnix: copying them takes less than a step."""


async def copy_stages(
    state: SchedulerState, request_id: str, transfer: KvTransfer, sleep: Callable[[float], Awaitable[None]]
) -> int:
    """Copy the computed tokens of a request in stages until few are left. Return the number of tokens copied."""
    copied = 0
    for _ in range(_STAGES):
        request = state.requests.get(request_id)
        left = computed_tokens(request) - copied if request is not None else 0
        if left <= _LAST_STAGE_BLOCKS * state.constants.block_size:
            break
        await sleep(transfer.seconds(left))
        copied += left
    return copied


def computed_tokens(request: RequestState) -> int:
    """The tokens whose KV exists for certain, without those that a step in flight computes."""
    return min(request.num_computed_tokens, request.num_tokens - 1)
