"""What a scheduler is told once, taken from an engine's configuration."""

from __future__ import annotations

from enum import Enum

import msgspec


class SchedulingPolicy(str, Enum):
    """Who goes first: whoever came first, or whoever has the smaller ``priority``, then whoever came first."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class SchedulerConstants(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one engine, under vLLM's names.

    Lengths are in tokens, sizes in blocks of ``block_size`` tokens.

    ``long_prefill_token_threshold``: the most of one prompt that a step takes while others wait; 0 is no limit.
    ``num_spec_tokens``: tokens drafted for each step; 0 is no speculative decoding.
    ``max_num_encoder_input_tokens``, ``encoder_cache_size``: what is encoded of multimodal inputs in one step, and what
    is kept. ``max_loras``: adapters in one step; ``None`` is any number. ``watermark``: the share of all blocks that an
    admission must leave free. ``reserve_full_sequence``: admit a request only if all that is known of it fits.
    ``include_finished_set``: tell each client which of its requests ended.

    ``long_prefill_threshold_when_alone``: whether that limit holds for a request that has the engine for itself.
    ``max_num_active_seqs``: admit nobody while so many requests hold blocks, running or not; ``None`` is no limit.
    ``prefill_schedule_interval``: while requests run, others are admitted in every so many-th step only.
    ``async_scheduling``: a step is planned before the outcome of the step before is known; not with drafts.
    ``staging_block_share``: the share of all blocks that requests which wait may pin; ``staging_depth``: how many of
    them are prepared ahead.
    """

    block_size: int = 16
    total_gpu_blocks: int = 16384
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    long_prefill_token_threshold: int = 0
    chunked_prefill_enabled: bool = True
    enable_prefix_caching: bool = True
    disable_chunked_mm_input: bool = False
    max_num_encoder_input_tokens: int = 8192
    encoder_cache_size: int = 8192
    policy: SchedulingPolicy = SchedulingPolicy.FCFS
    num_spec_tokens: int = 0
    max_loras: int | None = None
    watermark: float = 0.0
    reserve_full_sequence: bool = True
    include_finished_set: bool = False
    log_stats: bool = True
    long_prefill_threshold_when_alone: bool = True
    max_num_active_seqs: int | None = None
    prefill_schedule_interval: int = 1
    async_scheduling: bool = False
    staging_block_share: float = 0.25
    staging_depth: int = 16

    def __post_init__(self) -> None:
        if self.async_scheduling and self.num_spec_tokens:
            raise ValueError(
                "async_scheduling plans a step before the tokens that num_spec_tokens would guess from are known: "
                "use one of them"
            )

    @property
    def token_budget(self) -> int:
        """The most tokens of one step."""
        return self.max_num_batched_tokens

    @property
    def token_capacity(self) -> int:
        """The most tokens that all blocks together hold; one block is never handed out."""
        return (self.total_gpu_blocks - 1) * self.block_size

    @property
    def watermark_blocks(self) -> int:
        """The blocks that an admission must leave free."""
        return int(self.watermark * self.total_gpu_blocks)

    @property
    def use_spec_decode(self) -> bool:
        """Whether tokens are drafted."""
        return self.num_spec_tokens > 0
