"""The figures of a scheduler's state, under Llumnix's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.waiting import match_prefix

_MOST_MATCHED = 16
"""The waiting requests whose prefixes are looked up for each status: in a long queue, all would take too long."""


def load_figures(state: SchedulerState) -> dict[str, Any]:
    """The figures of a scheduler's state: memory, waiting and running requests."""
    total, free = state.constants.token_capacity, state.kv_cache.num_free_blocks * state.constants.block_size
    return {
        "num_total_gpu_tokens": total,
        "num_used_gpu_tokens": total - free,
        "active_loras": tuple(sorted({lora for each in (*state.running, *state.waiting) if (lora := each.asked.lora)})),
        "max_loras": state.constants.max_loras or 0,
        **_waiting(state),
        **_running(state),
    }


def _waiting(state: SchedulerState) -> dict[str, Any]:
    everyone = [*state.waiting, *state.paused.values()]
    loading = [request for request in everyone if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS]
    waiting = [request for request in everyone if request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS]
    uncomputed = sum(missing for request in waiting if (missing := _missing(request)) > 1)
    fresh = [request for request in islice(state.waiting, _MOST_MATCHED) if not request.num_computed_tokens]
    matches = [match_prefix(state, request) for request in fresh if request.num_tokens > 1]
    uncomputed -= sum(match.num_computed_tokens for match in matches if match is not None)
    decodes = [request for request in waiting if request.max_tokens > 1 or _missing(request) == 1]
    return {
        "waiting_requests": tuple(request.request_id for request in waiting),
        "num_waiting_requests": len(waiting),
        "num_loading_requests": len(loading),
        "num_tokens_loading_requests": _tokens(loading),
        "num_uncomputed_tokens_scheduler_waiting_prefills": uncomputed,
        "num_uncomputed_tokens_all_waiting_prefills": uncomputed,
        "scheduler_waiting_to_decode_requests_num": len(decodes),
        "scheduler_waiting_to_decode_tokens_num": _tokens(decodes),
    }


def _running(state: SchedulerState) -> dict[str, Any]:
    decodes = [request for request in state.running if request.max_tokens > 1]
    under_way = _under_way(state)
    uncomputed = unallocated = 0
    for request in state.running:
        if request.num_computed_tokens < request.num_prompt_tokens:
            unallocated += _missing(request)
        missing = _missing(request) + under_way.get(request.request_id, 0)
        if missing > 1:
            uncomputed += missing
    return {
        "num_running_requests": len(state.running),
        "scheduler_running_to_decode_requests_num": len(decodes),
        "scheduler_running_to_decode_tokens_num": _tokens(decodes),
        "num_uncomputed_tokens_scheduler_running_prefills": uncomputed,
        "num_unallocated_tokens_scheduler_running_prefills": unallocated,
    }


def _under_way(state: SchedulerState) -> Mapping[str, int]:
    """The tokens that steps in flight compute, by request."""
    tokens: dict[str, int] = {}
    for step in state.in_flight.values():
        for request_id, count in step.num_scheduled_tokens.items():
            tokens[request_id] = tokens.get(request_id, 0) + count
    return tokens


def _missing(request: RequestState) -> int:
    return request.num_tokens - request.num_computed_tokens


def _tokens(requests: Iterable[RequestState]) -> int:
    return sum(request.num_tokens for request in requests)
