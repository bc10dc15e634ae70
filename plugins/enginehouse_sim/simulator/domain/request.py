"""One request and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from enginehouse_sim.simulator.domain.images import MultiModalInput


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


@dataclass(kw_only=True, eq=False)
class RequestState:
    """A request and its counters, in tokens unless stated otherwise. Only the scheduler changes them.

    ``priority``: smaller is more urgent, as in vLLM. ``client_index``: the front end that gets the outputs.
    ``arrival_time``: seconds on the engine's clock. ``num_computed_tokens``: how many of ``all_token_ids`` have keys
    and values in the cache, or will have after the last step that was scheduled. ``num_cached_tokens``: the tokens that
    needed no computing when the request was first scheduled; -1 until then. ``num_output_placeholders``: tokens that
    steps in flight will add. ``spec_token_ids``: drafts for the next step. ``structured_output``: the grammar; ``None``
    for free text. ``block_hashes``: of the full blocks. ``kv_transfer_params``: the client's message to the KV
    connector. ``choice``: the number of this answer among several to the same prompt. ``logprobs``: the number of
    likeliest tokens to report at each place, at least the sampled one; ``None`` for none. ``stale_step``: the last step
    in flight when the blocks were freed; -1 for none. ``is_prefill_chunk``: the request's last step left known tokens
    to compute; kept up to date only with drafts or a connector.

    The scheduler derives three fields once instead of in every step. ``max_num_tokens``: the length at which the
    request finishes. ``ending_tokens``: the tokens that may finish it. ``fast_path_until``: below this many computed
    tokens, one more token needs no new block and no further check.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    min_tokens: int = 0
    choice: int = 0
    logprobs: int | None = None
    client_index: int = 0
    priority: int = 0
    arrival_time: float = 0.0
    eos_token_id: int | None = None
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    lora: str | None = None
    cache_salt: str | None = None
    structured_output: str | None = None
    mm_inputs: Sequence[MultiModalInput] = ()
    prompt_logprobs: bool = False
    pooling: bool = False
    kv_transfer_params: dict[str, Any] | None = None

    status: RequestStatus = RequestStatus.WAITING
    output_token_ids: list[int] = field(default_factory=list)
    all_token_ids: list[int] = field(default_factory=list)
    spec_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = -1
    num_output_placeholders: int = 0
    num_preemptions: int = 0
    stale_step: int = -1
    is_prefill_chunk: bool = False
    max_num_tokens: int = 0
    ending_tokens: frozenset[int] = frozenset()
    fast_path_until: int = 0
    block_hashes: list[int] = field(default_factory=list)
    stop_reason: int | str | None = None

    def __post_init__(self) -> None:
        self.all_token_ids = [*self.prompt_token_ids, *self.output_token_ids]
        self.ending_tokens = self.stop_token_ids
        if self.eos_token_id is not None and not self.ignore_eos:
            self.ending_tokens |= {self.eos_token_id}

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """The prompt and the outputs."""
        return len(self.all_token_ids)

    @property
    def num_tokens_with_spec(self) -> int:
        """The prompt, the outputs and the drafts."""
        return len(self.all_token_ids) + len(self.spec_token_ids)

    def detached_copy(self) -> RequestState:
        """A copy for another engine: with the outputs so far, and nothing computed."""
        return replace(
            self,
            status=RequestStatus.WAITING,
            output_token_ids=list(self.output_token_ids),
            spec_token_ids=[],
            num_computed_tokens=0,
            num_cached_tokens=-1,
            num_output_placeholders=0,
            num_preemptions=0,
            stale_step=-1,
            fast_path_until=0,
            block_hashes=[],
        )

    def append(self, token: int) -> None:
        self.output_token_ids.append(token)
        self.all_token_ids.append(token)
