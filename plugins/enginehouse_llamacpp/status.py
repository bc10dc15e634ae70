"""The load of a ``llama-server``: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md."""

from __future__ import annotations

from time import time

import msgspec

from enginehouse.drivers import EngineClient
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import metric_sums, read_json, read_metrics

_RUNNING, _WAITING = "llamacpp:requests_processing", "llamacpp:requests_deferred"


async def read_status(engine: EngineClient) -> InstanceStatus | None:
    """The status in Llumnix's names; ``None`` if the server shows neither metrics nor slots, as a router does.

    | of llama-server | of Llumnix |
    |---|---|
    | ``requests_processing`` | ``num_running_requests``, ``scheduler_running_to_decode_requests_num`` |
    | ``requests_deferred`` | ``num_waiting_requests``, ``scheduler_waiting_to_decode_requests_num`` |
    | sum of the slots' ``n_ctx``, too much where slots are unified | ``num_total_gpu_tokens`` |
    | sum of ``n_prompt_tokens`` of the slots that work | ``num_used_gpu_tokens`` |
    | ``n_prompt_tokens`` less ``n_prompt_tokens_processed`` and ``..._cache``, before the first token | \
``num_uncomputed_tokens_scheduler_running_prefills`` |
    """
    figures = await _metrics(engine)
    slots = await _slots(engine)
    if figures is None and slots is None:
        return None
    busy = [slot for slot in slots or () if slot.is_processing]
    running = int((figures or {}).get(_RUNNING, len(busy)))
    waiting = int((figures or {}).get(_WAITING, 0))
    return InstanceStatus(
        timestamp_ms=int(time() * 1000),
        num_running_requests=running,
        scheduler_running_to_decode_requests_num=running,
        num_waiting_requests=waiting,
        scheduler_waiting_to_decode_requests_num=waiting,
        num_total_gpu_tokens=sum(slot.n_ctx for slot in slots or ()),
        num_used_gpu_tokens=sum(slot.n_prompt_tokens for slot in busy),
        num_uncomputed_tokens_scheduler_running_prefills=sum(slot.uncomputed for slot in busy),
    )


class _NextToken(msgspec.Struct):
    n_decoded: int = 0


class _Slot(msgspec.Struct):
    n_ctx: int = 0
    is_processing: bool = False
    n_prompt_tokens: int = 0
    n_prompt_tokens_processed: int = 0
    n_prompt_tokens_cache: int = 0
    next_token: list[_NextToken] = []

    @property
    def uncomputed(self) -> int:
        """The tokens of the prompt that are not in the KV cache yet."""
        if any(token.n_decoded for token in self.next_token):
            return 0
        return max(0, self.n_prompt_tokens - self.n_prompt_tokens_processed - self.n_prompt_tokens_cache)


async def _metrics(engine: EngineClient) -> dict[str, float] | None:
    response = await engine.request("GET", "/metrics")
    if response.status != 200:  # 501 without --metrics, 400 from a router
        return None
    return metric_sums(read_metrics(response, (_RUNNING, _WAITING)))


async def _slots(engine: EngineClient) -> list[_Slot] | None:
    response = await engine.request("GET", "/slots")
    return read_json(response, list[_Slot]) if response.status == 200 else None  # 501 with --no-slots
