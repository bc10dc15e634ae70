"""What an engine says about itself."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from enginehouse import GatewayError
from enginehouse_sim.simulator.calibration.streams import EngineAddress, get, stream
from enginehouse_sim.simulator.steps.profile import EngineLimits

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TOKENS = 24


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an engine.

    ``kind``: ``llamacpp``, ``vllm``, ``sglang``, or ``openai`` for any other. ``tokens_per_event``: of its streams.
    """

    kind: str
    limits: EngineLimits
    tokens_per_event: float = 1.0


def body_for(kind: str, prompt: list[int], max_tokens: int, *, caches: bool = False) -> dict[str, Any]:
    """The body of a completion that does not end early. A ``llamacpp`` engine is asked not to cache it unless it
    ``caches``, which leaves that to its settings.

    vLLM and SGLang count the tokens in each event: they put several into one when many streams run.
    """
    body: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0,
    }
    if kind == "llamacpp" and not caches:
        body["cache_prompt"] = False
    elif kind in ("vllm", "sglang"):
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return body


async def engine_facts(address: EngineAddress, prompt: list[int]) -> EngineFacts:
    """Ask the engine; ``prompt``: of a request that counts the tokens in an event. Raises ``GatewayError``."""
    models = _json(await get(address, "/v1/models")).get("data") or []
    if not any(model.get("id") == address.model for model in models):
        names = ", ".join(str(model.get("id")) for model in models) or "none"
        raise GatewayError(f"{address.url} has no model '{address.model}'; it has {names}")
    model = next(model for model in models if model.get("id") == address.model)
    kind, limits = await _limits(address, model)
    timed = await stream(address, body_for(kind, prompt, _TOKENS))
    if len(timed.events) < 2:
        raise GatewayError(f"{address.url} streams no tokens one by one, so nothing can be measured")
    return EngineFacts(
        kind=kind, limits=limits, tokens_per_event=max(1.0, (timed.tokens or _TOKENS) / len(timed.events))
    )


async def _limits(address: EngineAddress, model: dict[str, Any]) -> tuple[str, EngineLimits]:
    props = _json(await get(address, "/props"))
    if "total_slots" in props:
        return "llamacpp", _of_llamacpp(props, model)
    server = _json(await get(address, "/get_server_info"))
    if "max_running_requests" in server or "chunked_prefill_size" in server:
        return "sglang", _of_sglang(server, model)
    metrics = (await get(address, "/metrics")).decode("utf-8", "replace")
    config = dict(_LABEL.findall(found[1])) if (found := _CACHE.search(metrics)) else {}
    info = _json(await get(address, "/server_info?config_format=json"))
    whole = info.get("vllm_config")
    scheduler = (whole if isinstance(whole, dict) else info).get("scheduler_config") or info
    kind = "vllm" if config else "openai"
    return kind, EngineLimits(
        max_num_seqs=_whole(scheduler.get("max_num_seqs")),
        max_num_batched_tokens=_whole(scheduler.get("max_num_batched_tokens")),
        max_model_len=_whole(model.get("max_model_len")),
        block_size=_whole(config.get("block_size")),
        total_gpu_blocks=_whole(config.get("num_gpu_blocks")),
        async_scheduling=scheduler.get("async_scheduling"),
    )


def _of_llamacpp(props: dict[str, Any], model: dict[str, Any]) -> EngineLimits:
    """Each slot has a context of its own. The server does not tell its batch: 2048 tokens is its default."""
    settings = props.get("default_generation_settings") or {}
    context = _whole(settings.get("n_ctx")) or _whole((model.get("meta") or {}).get("n_ctx"))
    return EngineLimits(
        max_num_seqs=_whole(props.get("total_slots")),
        max_model_len=context,
        max_num_batched_tokens=2048,
        async_scheduling=False,
    )


def _of_sglang(server: dict[str, Any], model: dict[str, Any]) -> EngineLimits:
    return EngineLimits(
        max_num_seqs=_whole(server.get("max_running_requests")),
        max_num_batched_tokens=_whole(server.get("chunked_prefill_size")),
        max_model_len=_whole(model.get("max_model_len")) or _whole(server.get("context_length")),
        block_size=_whole(server.get("page_size")),
    )


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _whole(value: object) -> int | None:
    """A positive number; ``None`` if the engine says nothing or "no limit"."""
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None
