"""One request, its counters, and its changes in a step."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from msgspec.structs import replace

from enginehouse_sim.simulator.domain.asked import EngineCoreRequest


class RequestStatus(IntEnum):
    """The state of a request; everything after ``PREEMPTED`` is final, as in vLLM."""

    WAITING = 0
    WAITING_FOR_FSM = 1
    WAITING_FOR_REMOTE_KVS = 2
    RUNNING = 3
    PAUSED = 4
    PREEMPTED = 5
    FINISHED_STOPPED = 6
    FINISHED_LENGTH_CAPPED = 7
    FINISHED_ABORTED = 8
    FINISHED_IGNORED = 9

    @property
    def finished(self) -> bool:
        return self > RequestStatus.PREEMPTED


FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_IGNORED: "length",
}
"""OpenAI's ``finish_reason`` for each final status."""


class RequestState:
    """A request and its counters, in tokens unless stated otherwise. Only the scheduler changes them.

    ``num_computed_tokens``: how many of ``all_token_ids`` have keys and values in the cache, or will have after the
    last step that was scheduled. ``num_cached_tokens``: the tokens that needed no computing when the request was first
    scheduled; -1 until then. ``num_output_placeholders``: tokens that steps in flight will add. ``spec_token_ids``:
    drafts for the next step. ``block_hashes``: of the full blocks. ``stale_step``: the last step in flight when the
    blocks were freed; -1 for none. ``is_prefill_chunk``: the request's last step left known tokens to compute; kept up
    to date only with drafts or a connector.

    The scheduler derives three fields once instead of in every step. ``max_num_tokens``: the length at which the
    request finishes. ``ending_tokens``: the tokens that may finish it. ``fast_path_until``: below this many computed
    tokens, one more token needs no new block and no further check.
    """

    def __init__(self, asked: EngineCoreRequest) -> None:
        self.asked = asked
        self.request_id = asked.request_id
        self.prompt_token_ids = asked.prompt_token_ids
        self.max_tokens = asked.max_tokens
        self.priority = asked.priority
        self.arrival_time = asked.arrival_time
        self.structured_output = asked.structured_output
        self.mm_inputs = asked.mm_inputs
        self.pooling = asked.pooling
        self.kv_transfer_params = asked.kv_transfer_params
        self.status = RequestStatus.WAITING
        self.output_token_ids = list(asked.output_token_ids)
        self.all_token_ids = [*asked.prompt_token_ids, *self.output_token_ids]
        self.spec_token_ids: list[int] = []
        self.num_computed_tokens = 0
        self.num_cached_tokens = -1
        self.num_output_placeholders = self.num_preemptions = 0
        self.stale_step = -1
        self.is_prefill_chunk = False
        self.max_num_tokens = self.fast_path_until = 0
        self.ending_tokens = asked.stop_token_ids
        if asked.eos_token_id is not None and not asked.ignore_eos:
            self.ending_tokens |= {asked.eos_token_id}
        self.block_hashes: list[int] = []
        self.stop_reason: int | str | None = None

    def asked_now(self) -> EngineCoreRequest:
        """What another engine is asked that continues this request."""
        return replace(
            self.asked,
            output_token_ids=tuple(self.output_token_ids),
            arrival_time=self.arrival_time,
            kv_transfer_params=self.kv_transfer_params,
        )

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def num_tokens_with_spec(self) -> int:
        return len(self.all_token_ids) + len(self.spec_token_ids)

    def append(self, token: int) -> None:
        self.output_token_ids.append(token)
        self.all_token_ids.append(token)


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


def fields_of(value: Any) -> dict[str, Any]:
    """The fields and properties of an object whose class has slots, by name. Compiled classes keep no list of slots."""
    return {
        name: getattr(value, name)
        for name, field in vars(type(value)).items()
        if hasattr(type(field), "__set__") and not name.startswith("_")
    }
