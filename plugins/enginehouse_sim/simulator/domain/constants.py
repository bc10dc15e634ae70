"""What an engine is asked, and its limits and settings, which are fixed when it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec


class MultiModalInput(msgspec.Struct, frozen=True):
    """An image or the like: ``length`` placeholder tokens from ``offset`` on.

    Equal content has an equal ``identifier``.
    """

    identifier: str
    offset: int
    length: int


IMAGE_TOKENS = 64
"""The tokens that stand for one image."""


class EngineCoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is asked, under vLLM's names. Lengths are in tokens.

    ``output_token_ids``: the tokens that another engine generated before the request moved here. ``choice``: the number
    of this answer among several to the same prompt. ``logprobs``: the number of likeliest tokens to report at each
    place, at least the sampled one; ``None`` for none. ``priority``: smaller is more urgent. ``arrival_time``: seconds
    on the engine's clock. ``structured_output``: the grammar; ``None`` for free text. ``pooling``: only the prompt is
    computed, as for embeddings. ``kv_transfer_params``: the client's message to the KV connector.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    output_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    choice: int = 0
    logprobs: int | None = None
    priority: int = 0
    arrival_time: float = 0.0
    eos_token_id: int | None = None
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    lora: str | None = None
    cache_salt: str | None = None
    structured_output: str | None = None
    mm_inputs: Sequence[MultiModalInput] = ()
    pooling: bool = False
    kv_transfer_params: dict[str, Any] | None = None


class SchedulingPolicy(str, Enum):
    """The order of waiting requests: ``fcfs`` by arrival; ``priority`` by the smaller ``priority``, then by arrival."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class SchedulerConstants(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one engine, under vLLM's names. Lengths are in tokens, sizes in blocks of ``block_size`` tokens.

    ``long_prefill_token_threshold``: the most tokens of one prompt in a step while others wait or run; 0: no limit.
    ``num_spec_tokens``: draft tokens per request and step, made by EAGLE, whose keys and values need room ahead; 0
    disables speculative decoding. ``max_num_encoder_input_tokens``, ``encoder_cache_size``: the encoder's budget for a
    step, and its cache. ``max_loras``: the most adapters in one step; ``None``: any number. ``watermark``: the share of
    all blocks that an admission leaves free. ``reserve_full_sequence``: admit a request only if all of its known tokens
    fit, as vLLM's ``scheduler_reserve_full_isl`` does; it prevents thrashing.

    ``max_num_active_seqs``: admit no request while this many run; ``None``: no limit. ``prefill_schedule_interval``:
    while requests run, admit others only in steps whose number is a multiple of this. ``async_scheduling``: plan a step
    before the outcome of the previous one is known.
    """

    block_size: int = 16
    total_gpu_blocks: int = 16384
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    long_prefill_token_threshold: int = 0
    chunked_prefill_enabled: bool = True
    enable_prefix_caching: bool = True
    max_num_encoder_input_tokens: int = 8192
    encoder_cache_size: int = 8192
    policy: SchedulingPolicy = SchedulingPolicy.FCFS
    num_spec_tokens: int = 0
    max_loras: int | None = None
    watermark: float = 0.0
    reserve_full_sequence: bool = True
    max_num_active_seqs: int | None = None
    prefill_schedule_interval: int = 1
    async_scheduling: bool = True

    @property
    def token_capacity(self) -> int:
        """The tokens that all blocks hold together. Block 0 is vLLM's null block, which no request gets."""
        return (self.total_gpu_blocks - 1) * self.block_size

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.total_gpu_blocks)

    @property
    def use_spec_decode(self) -> bool:
        return self.num_spec_tokens > 0


class OffloadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths in tokens, times in passes of the model.

    ``starvation_within``: offload if the worst case runs out of blocks within this many passes. ``safe_for``: resume or
    admit only if the blocks last for this many. The distance between the two prevents requests from moving back and
    forth. ``order``: which requests are offloaded first, one of ``OFFLOAD_ORDERS``. ``guaranteed_tokens``: the tokens
    that a request generates after its admission or return before it may be offloaded again.
    """

    starvation_within: int = 8
    safe_for: int = 32
    order: str = "fewest_blocks"
    guaranteed_tokens: int = 16


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, speed and text of an engine.

    ``profile``: the name or file of a speed profile. Without one, ``ttft`` is the time to a request's first token, and
    ``tpot`` the time from one token to the next. ``speedup`` divides all times; 0 means
    no time at all. ``seed``: decides all text. ``mean_length``: the average tokens until an answer ends
    by itself; ``None`` is never. ``draft_acceptance``: the chance of each draft to be right. ``host_blocks``: blocks of
    host memory that requests are offloaded to before the cache runs out, over a link of ``host_bandwidth`` bytes per
    second; with 0, requests are preempted instead.
    """

    constants: SchedulerConstants = SchedulerConstants()
    profile: str = ""
    ttft: float = 0.05
    tpot: float = 0.01
    speedup: float = 1.0
    seed: int = 0
    mean_length: int | None = None
    draft_acceptance: float = 0.7
    host_blocks: int = 0
    host_bandwidth: float = 25e9
    offload: OffloadSettings = OffloadSettings()
