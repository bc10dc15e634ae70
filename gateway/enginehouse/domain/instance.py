"""An engine instance, as rescheduling sees it. The names of the figures are Llumnix's."""

from __future__ import annotations

import msgspec


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The load of an instance, in requests and tokens: the 40 fields of Llumnix.

    What an engine leaves out is 0, but ``schedulable`` is true then. ``timestamp_ms``: milliseconds since the epoch.
    ``step_duration``: milliseconds. ``update_id`` grows with every change, ``step_id`` with every step.
    ``recent_waiting_requests``: requests of the last ten seconds. ``hybrid_...``: requests waiting outside of the
    engine's scheduler. ``uncomputed`` tokens are not in the KV cache yet; ``unallocated`` ones exclude the step in
    flight. ``..._to_decode``: requests that will generate more than one token, whether their prompt is computed or not.
    Figures of migrations count those under way.
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
