"""The plan of one step, and the model's result of it. Plain classes, because every step makes some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.outputs import NewRequestData, TokenLogprobs

_NOTHING: Mapping[str, Any] = {}


class CachedRequestData:
    """The changes of a request that the model runner knows.

    ``new_block_ids`` extend its block table. After a preemption they replace it, and ``token_ids`` are all tokens of
    the request, because the runner has dropped them. ``num_computed_tokens`` is the count before this step.
    """

    __slots__ = ("new_block_ids", "num_computed_tokens", "request_id", "resumed_from_preemption", "token_ids")

    def __init__(
        self,
        request_id: str,
        resumed_from_preemption: bool,
        new_block_ids: Sequence[int],
        num_computed_tokens: int,
        token_ids: Sequence[int] = (),
    ) -> None:
        self.request_id = request_id
        self.resumed_from_preemption = resumed_from_preemption
        self.new_block_ids = new_block_ids
        self.num_computed_tokens = num_computed_tokens
        self.token_ids = token_ids


class SchedulerOutput:
    """The plan of one step. ``num_scheduled_tokens`` keeps the order in which requests were scheduled.

    ``finished_req_ids``: requests that finished since the previous step. ``scheduled_encoder_inputs``: indices of
    multimodal inputs to encode, by request.
    ``structured_output_request_ids``: the row of each request in ``grammar_bitmask``.
    """

    __slots__ = (
        "cached_requests",
        "finished_req_ids",
        "grammar_bitmask",
        "kv_connector_metadata",
        "new_requests",
        "num_scheduled_tokens",
        "preempted_req_ids",
        "scheduled_encoder_inputs",
        "scheduled_spec_decode_tokens",
        "step",
        "structured_output_request_ids",
        "total_num_scheduled_tokens",
    )

    def __init__(
        self,
        *,
        step: int,
        new_requests: list[NewRequestData],
        cached_requests: list[CachedRequestData],
        num_scheduled_tokens: dict[str, int],
        total_num_scheduled_tokens: int,
        scheduled_spec_decode_tokens: Mapping[str, Sequence[int]] = _NOTHING,
        scheduled_encoder_inputs: Mapping[str, Sequence[int]] = _NOTHING,
        finished_req_ids: Sequence[str] = (),
        preempted_req_ids: Sequence[str] = (),
        structured_output_request_ids: Mapping[str, int] = _NOTHING,
        grammar_bitmask: Sequence[frozenset[int]] | None = None,
        kv_connector_metadata: Any = None,
    ) -> None:
        self.step = step
        self.new_requests = new_requests
        self.cached_requests = cached_requests
        self.num_scheduled_tokens = num_scheduled_tokens
        self.total_num_scheduled_tokens = total_num_scheduled_tokens
        self.scheduled_spec_decode_tokens = scheduled_spec_decode_tokens
        self.scheduled_encoder_inputs = scheduled_encoder_inputs
        self.finished_req_ids = finished_req_ids
        self.preempted_req_ids = preempted_req_ids
        self.structured_output_request_ids = structured_output_request_ids
        self.grammar_bitmask = grammar_bitmask
        self.kv_connector_metadata = kv_connector_metadata

    def later(self, steps: int) -> SchedulerOutput:
        """The plan of a steady step so many ``steps`` later."""
        return SchedulerOutput(
            step=self.step + steps,
            new_requests=[],
            cached_requests=[],
            num_scheduled_tokens=self.num_scheduled_tokens,
            total_num_scheduled_tokens=self.total_num_scheduled_tokens,
        )


class ModelRunnerOutput:
    """The model's result of a step: ``sampled_token_ids[req_id_to_index[id]]`` are the tokens of a request.

    They are empty while a prompt is only partly computed. ``spec_token_ids``: drafts for the next step, in the same
    order. ``logprobs``: for each sampled token, in the same shape, of requests that asked for them.
    ``kv_connector_finished_recving``, ``kv_connector_finished_sending``: requests whose loads or sends are complete.
    """

    __slots__ = (
        "kv_connector_finished_recving",
        "kv_connector_finished_sending",
        "logprobs",
        "pooler_output",
        "req_id_to_index",
        "req_ids",
        "sampled_token_ids",
        "spec_token_ids",
    )

    def __init__(
        self,
        *,
        req_ids: Sequence[str],
        req_id_to_index: dict[str, int],
        sampled_token_ids: Sequence[Sequence[int]],
        spec_token_ids: Sequence[Sequence[int]] | None = None,
        logprobs: Sequence[Sequence[TokenLogprobs]] | None = None,
        pooler_output: Mapping[str, Any] = _NOTHING,
        kv_connector_finished_recving: Sequence[str] = (),
        kv_connector_finished_sending: Sequence[str] = (),
    ) -> None:
        self.req_ids = req_ids
        self.req_id_to_index = req_id_to_index
        self.sampled_token_ids = sampled_token_ids
        self.spec_token_ids = spec_token_ids
        self.logprobs = logprobs
        self.pooler_output = pooler_output
        self.kv_connector_finished_recving = kv_connector_finished_recving
        self.kv_connector_finished_sending = kv_connector_finished_sending


def fields_of(value: Any) -> dict[str, Any]:
    """The fields and properties of an object whose class has slots, by name. Compiled classes keep no list of slots."""
    return {
        name: getattr(value, name)
        for name, field in vars(type(value)).items()
        if hasattr(type(field), "__set__") and not name.startswith("_")
    }
