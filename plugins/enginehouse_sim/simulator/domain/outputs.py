"""The plan of one step, the model's result, and the outputs for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.request import CachedRequestData, RequestState

TokenLogprobs = Sequence[tuple[int, float]]
"""(token, logprob) pairs: the sampled token first, then the likeliest others."""


PADDING_DRAFT = -1
"""A draft that is no token and is always rejected."""


class NewRequestData(EngineCoreRequest, frozen=True, kw_only=True):
    """A request that the model runner does not know yet; ``block_ids`` is its whole block table."""

    block_ids: Sequence[int]
    num_computed_tokens: int

    @classmethod
    def of(cls, request: RequestState, block_ids: Sequence[int], num_computed_tokens: int) -> NewRequestData:
        fields = {**msgspec.structs.asdict(request.asked), "output_token_ids": tuple(request.output_token_ids)}
        return cls(**fields, block_ids=block_ids, num_computed_tokens=num_computed_tokens)


_NOTHING: Mapping[str, Any] = {}


class SchedulerOutput(msgspec.Struct, kw_only=True):
    """The plan of one step. ``num_scheduled_tokens`` keeps the order in which requests were scheduled.

    ``finished_req_ids``: requests that finished since the previous step. ``scheduled_encoder_inputs``: indices of
    multimodal inputs to encode, by request.
    ``structured_output_request_ids``: the row of each request in ``grammar_bitmask``.
    """

    step: int
    new_requests: list[NewRequestData]
    cached_requests: list[CachedRequestData]
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]] = _NOTHING
    scheduled_encoder_inputs: Mapping[str, Sequence[int]] = _NOTHING
    finished_req_ids: Sequence[str] = ()
    preempted_req_ids: Sequence[str] = ()
    structured_output_request_ids: Mapping[str, int] = _NOTHING
    grammar_bitmask: Sequence[frozenset[int]] | None = None
    kv_connector_metadata: Any = None

    def later(self, steps: int) -> SchedulerOutput:
        """The plan of a steady step so many ``steps`` later."""
        return SchedulerOutput(
            step=self.step + steps,
            new_requests=[],
            cached_requests=[],
            num_scheduled_tokens=self.num_scheduled_tokens,
            total_num_scheduled_tokens=self.total_num_scheduled_tokens,
        )


class ModelRunnerOutput(msgspec.Struct, kw_only=True):
    """The model's result of a step: ``sampled_token_ids[req_id_to_index[id]]`` are the tokens of a request.

    They are empty while a prompt is only partly computed. ``spec_token_ids``: drafts for the next step, in the same
    order. ``logprobs``: for each sampled token, in the same shape, of requests that asked for them.
    ``kv_connector_finished_recving``, ``kv_connector_finished_sending``: requests whose loads or sends are complete.
    """

    req_ids: Sequence[str]
    req_id_to_index: dict[str, int]
    sampled_token_ids: Sequence[Sequence[int]]
    spec_token_ids: Sequence[Sequence[int]] | None = None
    logprobs: Sequence[Sequence[TokenLogprobs]] | None = None
    pooler_output: Mapping[str, Any] = _NOTHING
    kv_connector_finished_recving: Sequence[str] = ()
    kv_connector_finished_sending: Sequence[str] = ()


class EngineCoreOutput(msgspec.Struct, gc=False):
    """The outputs of one request in one step. ``finish_reason`` and ``num_preemptions`` come with its last tokens."""

    request_id: str
    new_token_ids: Sequence[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    new_logprobs: Sequence[TokenLogprobs] | None = None
    pooling_output: Any = None
    kv_transfer_params: Mapping[str, Any] | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0


class SchedulerTotals(msgspec.Struct):
    """Counters since the scheduler's start, under the names of vLLM's metrics.

    Queries and hits are in tokens. The external ones are those of the connector, after the prefix cache.
    """

    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    external_prefix_cache_queries: int = 0
    external_prefix_cache_hits: int = 0
    num_preemptions: int = 0
    spec_decode_num_draft_tokens: int = 0
    spec_decode_num_accepted_tokens: int = 0
