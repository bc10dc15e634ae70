"""Ending a request: whatever it holds goes back, and everybody who has to know is noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse_sim.scheduler.output import EngineCoreOutput
from enginehouse_sim.scheduler.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState


def let_go(state: SchedulerState, request: RequestState) -> Mapping[str, Any] | None:
    """Free all that an ended request holds; its blocks later, if the connector still sends them.

    What its client is told of a transfer. Whoever calls takes it off the list that it is on.
    """
    keep, transfer = False, None
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        keep, transfer = state.connector.request_finished(request, block_ids)
    if request.structured_output is not None and state.grammars is not None:
        state.grammars.finished(request)
    state.transfers.forget(request)
    state.encoder_cache.release_all(request)
    state.endings.note(request)
    del state.requests[request.request_id]
    if keep:
        state.transfers.keep(request)
    else:
        state.kv_cache.free(request)
    return transfer


def end_unserved(
    state: SchedulerState, request: RequestState, status: RequestStatus, reason: str | None = None
) -> None:
    """A waiting request that can never run ends alone; its client hears of it with the next outputs."""
    state.staging.remove((request.request_id,))
    request.status = status
    request.stop_reason = reason
    transfer = let_go(state, request)
    output = EngineCoreOutput(request.request_id, (), FINISH_REASONS[status], reason, kv_transfer_params=transfer)
    state.endings.owe(request.client_index, output)
