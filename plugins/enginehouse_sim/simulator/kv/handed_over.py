"""Disaggregated prefill: one engine computes the prompt, another one decodes. An engine can do either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.connector import KvSource
from enginehouse_sim.simulator.steps.costs import KvTransfer


class HandedOverPrompts(KvSource):
    """Follows ``kv_transfer_params`` with the keys of vLLM's NIXL connector.

    A request with ``do_remote_decode`` that finishes by its length gets the parameters for the decoding engine. A
    request with ``do_remote_prefill`` loads its prompt. The engine believes its parameters: it asks no other engine.
    """

    def __init__(self, transfer: KvTransfer) -> None:
        self.transfer = transfer

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        params = request.kv_transfer_params
        if params is None or not params.get("do_remote_prefill"):
            return 0
        return max(0, request.num_prompt_tokens - num_computed_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if num_tokens:  # as in vLLM, only once: after a preemption, the prompt is computed
            request.kv_transfer_params = None

    def handed_over(self, request: RequestState) -> Mapping[str, Any] | None:
        params = request.kv_transfer_params
        wanted = params is not None and params.get("do_remote_decode")
        if not wanted or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
            return None
        return {"do_remote_prefill": True, "do_remote_decode": False, "remote_request_id": request.request_id}
