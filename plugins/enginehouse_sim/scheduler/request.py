"""One request, as the scheduler keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec


class RequestStatus(IntEnum):
    """Where a request is; everything after ``PREEMPTED`` is over."""

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
        """Whether the request is over."""
        return self > RequestStatus.PREEMPTED


FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_IGNORED: "length",
}
"""What a client is told of how a request ended."""


class MultiModalInput(msgspec.Struct, frozen=True):
    """An image or the like: ``length`` placeholder tokens from ``offset`` on; equal ``identifier``, equal content."""

    identifier: str
    offset: int
    length: int


class RequestState(msgspec.Struct, kw_only=True, eq=False):
    """A request and all its counters, in tokens unless said otherwise. Only the scheduler changes it.

    ``priority``: smaller is more urgent. ``client_index``: which front end gets its outputs. ``arrival_time``: seconds
    on the engine's clock. ``num_computed_tokens``: how many of ``all_token_ids`` have their keys and values in the
    cache, or will have after the step that was scheduled last. ``num_cached_tokens``: how many of them did not have to
    be computed when it was first scheduled; -1 until then. ``num_output_placeholders``: tokens that a step under way
    will add. ``spec_token_ids``: drafts for the next step. ``structured_output``: the grammar asked for, ``None`` for
    free text. ``block_hashes``: of its full blocks, as prefix caching names them. ``kv_transfer_params``: what its
    client tells the connector. ``choice``: which of several answers to the same prompt this is. ``logprobs``: of how
    many likely tokens, at least its own, each of its tokens comes with them; ``None`` for none. ``num_preemptions``:
    how often its blocks were taken away. ``stale_step``: the last step that was under way when they were; -1 for none.

    What the scheduler derives once instead of in each step: ``max_num_tokens``, the length at which the request ends;
    ``ending_tokens``, those of which one may end it; ``quiet_until``, below how many computed tokens one more needs
    neither a block nor anybody's consent.
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
    output_token_ids: list[int] = msgspec.field(default_factory=list)
    all_token_ids: list[int] = msgspec.field(default_factory=list)
    spec_token_ids: list[int] = msgspec.field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = -1
    num_output_placeholders: int = 0
    num_nans_in_logits: int = 0
    num_preemptions: int = 0
    stale_step: int = -1
    max_num_tokens: int = 0
    ending_tokens: frozenset[int] = frozenset()
    quiet_until: int = 0
    block_hashes: list[int] = msgspec.field(default_factory=list)
    stop_reason: int | str | None = None

    def __post_init__(self) -> None:
        self.all_token_ids = [*self.prompt_token_ids, *self.output_token_ids]
        self.ending_tokens = self.stop_token_ids
        if self.eos_token_id is not None and not self.ignore_eos:
            self.ending_tokens |= {self.eos_token_id}

    @property
    def num_prompt_tokens(self) -> int:
        """The length of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and outputs."""
        return len(self.all_token_ids)

    @property
    def num_tokens_with_spec(self) -> int:
        """Prompt, outputs and drafts."""
        return len(self.all_token_ids) + len(self.spec_token_ids)

    @property
    def has_encoder_inputs(self) -> bool:
        """Whether there is an image or the like in the prompt."""
        return bool(self.mm_inputs)

    def to_continue(self) -> RequestState:
        """The same request for another engine: with the outputs so far, and nothing of it computed there."""
        return msgspec.structs.replace(
            self,
            status=RequestStatus.WAITING,
            output_token_ids=list(self.output_token_ids),
            spec_token_ids=[],
            num_computed_tokens=0,
            num_cached_tokens=-1,
            num_output_placeholders=0,
            num_preemptions=0,
            stale_step=-1,
            quiet_until=0,
            block_hashes=[],
        )

    def append(self, token: int) -> None:
        """The model made one more token."""
        self.output_token_ids.append(token)
        self.all_token_ids.append(token)
