"""The options of a launched simulated engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from enginehouse import EngineOptions, LaunchSpec, option_arguments

_SWITCHES = ("disable_chunked_mm_input",)
"""The flags that have no opposite."""


class SimOptions(EngineOptions, frozen=True, forbid_unknown_fields=True):
    """Each field is the flag of the same name. The engine has a default for a field that is left out."""

    profile: Annotated[str | None, Meta(description="speed: the name of a profile, or a .toml file")] = None
    ttft: Annotated[str | None, Meta(description="time to a first token, without a profile")] = None
    tpot: Annotated[str | None, Meta(description="time from one token to the next, without a profile")] = None
    speedup: Annotated[float | None, Meta(description="divides all times; 0 means no time at all")] = None
    decode_speedup: Annotated[float | None, Meta(description="divides the times of decodes as well")] = None
    seed: Annotated[int | None, Meta(description="decides all text and vectors")] = None
    mean_length: Annotated[int | None, Meta(description="average tokens until an answer ends by itself")] = None
    max_num_seqs: Annotated[int | None, Meta(description="most requests in a step; others wait")] = None
    max_loras: Annotated[int | None, Meta(description="most adapters in a step")] = None
    max_num_batched_tokens: Annotated[int | None, Meta(description="most tokens in a step")] = None
    block_size: Annotated[int | None, Meta(description="tokens in a block of the KV cache")] = None
    num_gpu_blocks: Annotated[int | None, Meta(description="blocks of the KV cache")] = None
    host_blocks: Annotated[int | None, Meta(description="blocks of host memory to which requests are offloaded")] = None
    host_bandwidth: Annotated[float | None, Meta(description="bytes per second to host memory")] = None
    offload_within: Annotated[int | None, Meta(description="passes before blocks run out to offload in")] = None
    offload_safe_for: Annotated[int | None, Meta(description="passes that blocks must last for a return")] = None
    offload_order: Annotated[
        Literal["fewest_blocks", "most_remaining", "least_urgent"] | None,
        Meta(description="which requests are offloaded first"),
    ] = None
    offload_guaranteed_tokens: Annotated[int | None, Meta(description="tokens between two offloads of one")] = None
    policy: Annotated[Literal["fcfs", "priority"] | None, Meta(description="order of waiting requests")] = None
    chunked_prefill: Annotated[bool | None, Meta(description="compute prompts in pieces")] = None
    prefix_caching: Annotated[bool | None, Meta(description="share equal prefixes")] = None
    long_prefill_token_threshold: Annotated[
        int | None, Meta(description="most tokens of one prompt in a step; 0 means no limit")
    ] = None
    max_num_active_seqs: Annotated[int | None, Meta(description="most running requests")] = None
    prefill_schedule_interval: Annotated[
        int | None, Meta(description="while others run, admit only in every Nth step")
    ] = None
    reserve_full_sequence: Annotated[
        bool | None, Meta(description="admit a request only if all of its known tokens fit")
    ] = None
    async_scheduling: Annotated[bool | None, Meta(description="plan each step before the result of the one before")] = (
        None
    )
    max_num_encoder_input_tokens: Annotated[
        int | None, Meta(description="most tokens of images to encode in a step")
    ] = None
    encoder_cache_size: Annotated[int | None, Meta(description="tokens of encoded images to keep")] = None
    disable_chunked_mm_input: Annotated[bool | None, Meta(description="compute no image in pieces")] = None
    watermark: Annotated[float | None, Meta(description="share of all blocks that an admission leaves free")] = None
    num_spec_tokens: Annotated[int | None, Meta(description="tokens drafted for each step of a request")] = None
    draft_method: Annotated[
        Literal["ngram", "draft_model", "eagle"] | None,
        Meta(description="method of drafting, which decides the cost of drafts"),
    ] = None
    draft_acceptance: Annotated[float | None, Meta(description="chance of each draft to be accepted")] = None
    start_delay: Annotated[str | None, Meta(description="time until it listens, as if it loaded a model")] = None
    kv_bandwidth: Annotated[float | None, Meta(description="bytes per second between engines")] = None
    kv_events_config: Annotated[
        dict[str, Any] | None, Meta(description="where the KV cache's events are published")
    ] = None


def engine_flags(spec: LaunchSpec) -> Sequence[str]:
    """The flags that ``spec`` decides; those of its ``args`` follow them."""
    context = ["--context-length", str(spec.context_length)] if spec.context_length else []
    events = ["--kv-events-config", spec.kv_events] if spec.kv_events else []
    return [*context, *option_arguments(spec.options_as(SimOptions), switches=_SWITCHES), *events]
