"""Pausing running requests, with or without their blocks."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState


def pause(state: SchedulerState, request_id: str, *, keep_blocks: bool) -> None:
    """Take a running request out of the batch. A step in flight still adds its tokens.

    Raises ``ValueError`` if it is not running.
    """
    request = state.requests.get(request_id)
    if request is None or request.status is not RequestStatus.RUNNING:
        raise ValueError(f"request {request_id!r} is not running: only running requests can be paused")
    state.running.remove(request)
    request.status = RequestStatus.PAUSED
    state.paused[request_id] = request
    if not keep_blocks:
        state.free_blocks(request)


def drop_blocks(state: SchedulerState, request_id: str) -> None:
    """Free the blocks of a paused request."""
    state.free_blocks(state.paused[request_id])


def resume(state: SchedulerState, request_id: str) -> bool:
    """Resume a paused request. Return ``False`` if it kept its blocks and the batch is full.

    Raises ``ValueError`` if it is not paused.
    """
    request = state.paused.get(request_id)
    if request is None:
        raise ValueError(f"request {request_id!r} is not paused: only paused requests can be resumed")
    holds_blocks = request.num_computed_tokens > 0
    if holds_blocks and len(state.running) >= state.constants.max_num_seqs:
        return False
    del state.paused[request_id]
    if holds_blocks:
        request.status = RequestStatus.RUNNING
        state.running.insert(_place(state, request), request)
    else:
        request.status = RequestStatus.PREEMPTED
        state.waiting.put_back(request)
    return True


def _place(state: SchedulerState, request: RequestState) -> int:
    """Before later arrivals: the last running request is preempted first."""
    for index, other in enumerate(state.running):
        if other.arrival_time > request.arrival_time:
            return index
    return len(state.running)
