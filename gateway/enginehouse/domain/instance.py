"""Engine instances and their live requests, as rescheduling sees them. Names of figures are Llumnix's."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The load of an instance, in requests and tokens: the 40 fields of Llumnix.

    A figure that an engine leaves out is 0; ``schedulable`` is then true. ``timestamp_ms`` is in milliseconds since the
    epoch, ``step_duration`` in milliseconds. ``update_id`` grows with every change, ``step_id`` with every step.
    ``recent_waiting_requests`` are those of the last ten seconds. ``hybrid_...`` counts requests that wait outside of
    the engine's scheduler. ``uncomputed`` tokens are not in the KV cache yet; ``unallocated`` ones exclude the step in
    flight. ``..._to_decode`` counts requests that will generate more than one token, with or without a computed prompt.
    Figures of migrations count those in progress.
    """

    instance_id: str = ""
    schedulable: bool = True
    timestamp_ms: int = 0
    step_id: int = 0
    update_id: int = 0
    recent_waiting_requests: tuple[str, ...] = ()
    waiting_requests: tuple[str, ...] = ()
    hybrid_scheduler_waiting_to_decode_requests_num: int = 0
    scheduler_waiting_to_decode_requests_num: int = 0
    num_waiting_requests: int = 0
    scheduler_running_to_decode_requests_num: int = 0
    num_running_requests: int = 0
    num_loading_requests: int = 0
    num_total_gpu_tokens: int = 0
    num_used_gpu_tokens: int = 0
    num_uncomputed_tokens_hybrid_scheduler_waiting_prefills: int = 0
    num_unallocated_tokens_hybrid_scheduler_waiting_decodes: int = 0
    hybrid_scheduler_waiting_to_decode_tokens_num: int = 0
    num_uncomputed_tokens_scheduler_waiting_prefills: int = 0
    scheduler_waiting_to_decode_tokens_num: int = 0
    num_uncomputed_tokens_scheduler_running_prefills: int = 0
    num_unallocated_tokens_scheduler_running_prefills: int = 0
    scheduler_running_to_decode_tokens_num: int = 0
    num_tokens_loading_requests: int = 0
    num_uncomputed_tokens_all_waiting_prefills: int = 0
    num_migrate_in_reqs: int = 0
    num_migrate_out_reqs: int = 0
    num_available_migrate_in_slots: int = 0
    num_available_migrate_out_slots: int = 0
    num_migrate_in_tokens: int = 0
    num_migrate_out_tokens: int = 0
    num_available_migrate_in_tokens: int = 0
    num_available_migrate_out_tokens: int = 0
    kv_cache_usage_ratio_migrate_in: float = 0.0
    kv_cache_usage_ratio_migrate_out: float = 0.0
    available_kv_cache_usage_ratio_migrate_in: float = 0.0
    available_kv_cache_usage_ratio_migrate_out: float = 0.0
    profiling_id: int = 0
    step_duration: float = 0.0
    num_scheduled_prefill_tokens: int = 0
    active_loras: tuple[str, ...] = ()
    """The LoRA adapters of running and waiting requests. This figure and the next one are not Llumnix's."""
    max_loras: int = 0
    """The most adapters that run at once."""


class InstanceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address at which other instances and the gateway reach an instance for migrations; a port of 0 means none."""

    ip: str = ""
    llumlet_port: int = 0
    """The port for Llumnix's ``Migrate``."""
    kvt_port: int = 0
    """The port for requests with their keys and values from other instances."""


class InstanceMetadata(InstanceAddress, frozen=True, kw_only=True):
    """The constant facts of an instance, under Llumnix's names. A fact that an engine leaves out is empty or 0."""

    node_id: str = ""
    unit_id: str = ""
    data_parallel_size: int = 0
    """0 and 1 both mean no data parallelism."""
    block_size: int = 0
    """Tokens per block of the KV cache."""
    max_num_batched_tokens: int = 0
    """The most tokens that one step computes."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A live request of an instance, as the gateway sees it."""

    id: str
    model: str = ""
    arrived_ms: int = 0
    """The time of arrival, in milliseconds since the Unix epoch."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int | None = None
    """The most tokens that it may generate; ``None`` if it has no limit of its own."""
    running: bool = True
    """Whether it has begun to generate; otherwise it waits."""
    stays: str | None = None
    """Why it cannot move; ``None`` if it can."""

    @property
    def num_tokens(self) -> int:
        """The tokens of the prompt and of the output so far."""
        return self.prompt_tokens + self.output_tokens


class InstanceReport(NamedTuple):
    """The last figures of an engine. ``asked_at``: when they were asked for, in seconds of the gateway's clock.

    The timestamp of ``status`` is the gateway's, because clocks of other machines may be wrong.
    """

    status: InstanceStatus
    metadata: InstanceMetadata
    asked_at: float
