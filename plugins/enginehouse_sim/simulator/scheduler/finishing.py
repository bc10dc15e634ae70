"""Finishes requests: frees their resources, and notes the end for the model runner and the clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState


def free_request(state: SchedulerState, request: RequestState) -> Mapping[str, Any] | None:
    """Free everything that a finished request holds, except blocks that the connector still sends.

    Return the client's ``kv_transfer_params``. The caller removes the request from its queue.
    """
    keep, transfer = False, None
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        keep, transfer = state.connector.request_finished(request, block_ids)
    if request.structured_output is not None and state.grammars is not None:
        state.grammars.finished(request)
    state.transfers.cancel_load(request)
    state.encoder_cache.release_all(request)
    state.finished.append(request.request_id)
    del state.requests[request.request_id]
    if keep:
        state.transfers.keep(request)
    else:
        state.kv_cache.free(request)
    return transfer


def finish_waiting(
    state: SchedulerState, request: RequestState, status: RequestStatus, reason: str | None = None
) -> None:
    """Finish a waiting request that can never run; its client gets an output with the next step."""
    state.waiting.remove((request.request_id,))
    request.status = status
    request.stop_reason = reason
    transfer = free_request(state, request)
    output = EngineCoreOutput(request.request_id, (), FINISH_REASONS[status], reason, kv_transfer_params=transfer)
    state.finished_outputs.append(output)
