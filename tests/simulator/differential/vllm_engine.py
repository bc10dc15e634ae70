"""vLLM's own scheduler, in a process of its own: workloads in and their steps out, one JSON line each.

Runs with the interpreter that ``make engines ENGINES=vllm`` brings. vLLM's configuration classes want a model, so the
scheduler gets plain objects with the attributes that it reads; everything it derives from them is its own code.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import torch
from vllm import SamplingParams
from vllm.config.vllm import VllmConfig
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tests.simulator.differential.drive import Scheduled, drive
from tests.simulator.differential.workload import EOS, Item, StepRecord, Workload

init_none_hash(sha256)


class Connector:
    """A KV connector that has what the workload says."""

    supports_divergent_local_hybrid_hits = False
    requires_kv_delivery = False

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.asked: dict[str, int] = {}
        self.loads: list[str] = []
        self.sends: list[str] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        item = self.items[request.request_id]
        asked = self.asked[item.request_id] = self.asked.get(item.request_id, 0) + 1
        if asked <= item.asks:
            return None, False
        is_async = bool(item.load_steps)
        found = min(item.external, request.num_tokens if is_async else request.num_tokens - 1) - num_computed
        return (found, is_async) if found > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external: int) -> None:
        if num_external and self.items[request.request_id].load_steps:
            self.loads.append(request.request_id)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        keeps = bool(self.items[request.request_id].send_steps) and request.num_computed_tokens > 0
        if keeps and request.status is not RequestStatus.FINISHED_ABORTED:
            self.sends.append(request.request_id)
            return True, None
        return False, None

    def on_new_request(self, request: Any) -> None: ...
    def update_connector_output(self, output: Any) -> None: ...
    def build_connector_meta(self, output: Any) -> None: ...
    def get_external_cache_hit_sources(self, request: Any, hits: int) -> None: ...
    def take_events(self) -> tuple[()]:
        return ()

    def get_kv_connector_stats(self) -> None: ...
    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return ()

    def has_pending_block_frees(self) -> bool:
        return False


class _Drafting:
    """What vLLM asks its speculative configuration."""

    num_speculative_tokens_per_batch_size = None
    disable_eagle_block_drop = False
    parallel_drafting = False
    method = "eagle"
    max_num_new_slots_for_drafting = 0

    def __init__(self, num_tokens: int) -> None:
        self.num_speculative_tokens = num_tokens

    def use_eagle(self) -> bool:
        return True

    use_eagle_block_drop = use_eagle

    def uses_draft_model(self) -> bool:
        return False

    use_dflash = use_dspark = use_multi_module_mtp = uses_draft_model


class _Plan(NamedTuple):
    output: Any
    computed: dict[str, int]


class VllmEngine(Scheduled):
    """vLLM's scheduler with the limits of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        limits = workload.limits
        self._items = {item.request_id: item for item in workload.items}
        self._hasher = get_request_block_hasher(limits["block_size"], sha256)
        kind = AsyncScheduler if limits.get("async_scheduling") else Scheduler
        structured = SimpleNamespace(
            accept_tokens=lambda request, tokens: True, validate_tokens=lambda request, tokens: list(tokens)
        )
        spec = FullAttentionSpec(limits["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
        cache = KVCacheConfig(limits["total_gpu_blocks"], [], [KVCacheGroupSpec(["layer"], spec)])
        self._scheduler: Any = kind(_config(limits), cache, structured, limits["block_size"], log_stats=False)
        scheduler = self._scheduler
        scheduler.max_num_encoder_input_tokens = limits.get("max_num_encoder_input_tokens", 0)
        scheduler.encoder_cache_manager = EncoderCacheManager(limits.get("encoder_cache_size", 0))
        self._connector: Connector | None = None
        if workload.connector:
            self._connector = scheduler.connector = Connector()
        self._cached: dict[str, int] = {}

    def add(self, item: Item) -> None:
        if self._connector is not None:
            self._connector.items[item.request_id] = item
        self._scheduler.add_request(_request(item, self._hasher))

    def abort(self, request_id: str) -> None:
        self._scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def has_requests(self) -> bool:
        return bool(self._scheduler.requests)

    def begun_loads(self) -> list[str]:
        if self._connector is None:
            return []
        loads, self._connector.loads = self._connector.loads, []
        return loads

    def begun_sends(self) -> list[str]:
        if self._connector is None:
            return []
        sends, self._connector.sends = self._connector.sends, []
        return sends

    def schedule(self) -> tuple[_Plan, StepRecord]:
        scheduler = self._scheduler
        output = scheduler.schedule()
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request_id in output.num_scheduled_tokens:
            self._cached.setdefault(request_id, computed[request_id])
        tables = {name: scheduler.kv_cache_manager.get_block_ids(name)[0] for name in scheduler.requests}
        record = StepRecord(
            step=scheduler.current_step - 1,
            scheduled=[(name, count, computed[name]) for name, count in output.num_scheduled_tokens.items()],
            drafts={name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()},
            encoder_inputs={name: list(inputs) for name, inputs in output.scheduled_encoder_inputs.items()},
            preempted=sorted(output.preempted_req_ids),
            running=[request.request_id for request in scheduler.running],
            waiting=[request.request_id for request in (*scheduler.kv_holding_waiting, *scheduler.waiting)],
            free_blocks=scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            blocks={name: list(table) for name, table in sorted(tables.items()) if table},
        )
        return _Plan(output, computed), record

    def update(self, plan: _Plan, record: StepRecord, received: list[str], sent: list[str]) -> None:
        scheduler, output = self._scheduler, plan.output
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sampled(plan, name) for name in ids]
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={name: index for index, name in enumerate(ids)},
            sampled_token_ids=[list(tokens) for tokens in sampled],
            kv_connector_output=KVConnectorOutput(finished_recving=received, finished_sending=sent),
        )
        drafts = {
            name: self._workload.drafts(self._items[name], self._num_outputs(name) + len(tokens))
            for name, tokens in zip(ids, sampled, strict=True)
            if tokens and name in scheduler.requests
        }
        outputs = scheduler.update_from_output(output, result)
        record.outputs = sorted(
            (
                each.request_id,
                list(each.new_token_ids),
                None if each.finish_reason is None else str(each.finish_reason),
                each.stop_reason,
                self._cached[each.request_id],
            )
            for client in outputs.values()
            for each in client.outputs
        )
        limits = self._workload.limits
        if limits.get("num_spec_tokens") and drafts and not limits["async_scheduling"]:
            scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))

    def _num_outputs(self, name: str) -> int:
        request = self._scheduler.requests.get(name)
        return 0 if request is None else request.num_output_tokens

    def _sampled(self, plan: _Plan, name: str) -> list[int]:
        request = self._scheduler.requests.get(name)
        if request is None or request.is_finished():
            return [EOS]
        drafts = plan.output.scheduled_spec_decode_tokens.get(name, [])
        end = plan.computed[name] + plan.output.num_scheduled_tokens[name]
        if end < request.num_tokens + len(drafts):
            return []
        return self._workload.sampled(self._items[name], request.num_output_tokens, drafts)


def _config(limits: dict[str, Any]) -> Any:
    """The configuration as the scheduler reads it."""
    num_spec = limits.get("num_spec_tokens", 0)
    is_async = limits.get("async_scheduling", False)
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=limits["max_num_seqs"],
            max_num_active_seqs=limits.get("max_num_active_seqs"),
            max_num_scheduled_tokens=None,
            max_num_batched_tokens=limits["max_num_batched_tokens"],
            long_prefill_token_threshold=limits.get("long_prefill_token_threshold", 0),
            long_prefill_token_threshold_adaptive=False,
            policy=limits.get("policy", "fcfs"),
            watermark=limits.get("watermark", 0.0),
            scheduler_reserve_full_isl=limits.get("reserve_full_sequence", True),
            enable_chunked_prefill=limits.get("chunked_prefill_enabled", True),
            disable_chunked_mm_input=False,
            async_scheduling=is_async,
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks=limits["total_gpu_blocks"],
            block_size=limits["block_size"],
            enable_prefix_caching=limits.get("enable_prefix_caching", True),
            enable_mamba_shared_prefix_checkpoint=False,
            mamba_cache_mode="none",
        ),
        model_config=SimpleNamespace(
            uses_mrope=False,
            is_encoder_decoder=False,
            max_model_len=limits["max_model_len"],
            runner_type="generate",
            is_diffusion=False,
            supports_multimodal_inputs=False,
            return_sampling_mask=False,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_index=0,
        ),
        observability_config=SimpleNamespace(
            per_request_spec_decode_metrics="none",
            kv_cache_metrics=False,
            enable_mfu_metrics=False,
            enable_logging_iteration_details=False,
        ),
        lora_config=SimpleNamespace(max_loras=limits["max_loras"]) if limits.get("max_loras") else None,
        speculative_config=_Drafting(num_spec) if num_spec else None,
        diffusion_config=None,
        kv_events_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        is_mm_encoder_only=False,
        max_concurrent_batches=2 if is_async else 1,
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=SimpleNamespace(enabled=False),
        use_v2_model_runner=False,
    )
    for name in (
        "max_in_flight_tokens",
        "num_speculative_tokens",
        "num_lookahead_tokens",
        "num_prefill_lookahead_tokens",
    ):
        setattr(config, name, getattr(VllmConfig, name).fget(config))
    return config


def _request(item: Item, hasher: Any) -> Request:
    sampling = SamplingParams(
        max_tokens=item.max_tokens,
        min_tokens=item.min_tokens,
        ignore_eos=item.ignore_eos,
        stop_token_ids=item.stop_token_ids,
    )
    sampling.update_from_generation_config({}, None if item.ignore_eos else EOS)
    images = [
        MultiModalFeatureSpec(None, "image", identifier, PlaceholderRange(offset, length), identifier)
        for identifier, offset, length in item.images
    ]
    return Request(
        item.request_id,
        item.prompt,
        sampling,
        None,
        arrival_time=item.arrival_time,
        mm_features=images,
        lora_request=LoRARequest(f"lora-{item.lora}", item.lora, f"/lora-{item.lora}") if item.lora else None,
        cache_salt=item.salt,
        priority=item.priority,
        block_hasher=hasher,
    )


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        workload = msgspec.json.decode(line, type=Workload)
        records = drive(workload, VllmEngine(workload))
        sys.stdout.buffer.write(msgspec.json.encode(records) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
