"""The options of a launched SGLang server."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from enginehouse.drivers import EngineOptions


class SglangOptions(EngineOptions, frozen=True, forbid_unknown_fields=True):
    """Each is the flag of the same name; one that is left out is SGLang's own default.

    Their meaning: https://docs.sglang.ai/advanced_features/server_arguments.html
    """

    tp_size: Annotated[int | None, Meta(description="GPUs that share each layer")] = None
    pp_size: Annotated[int | None, Meta(description="GPUs that hold layers one after the other")] = None
    dp_size: Annotated[int | None, Meta(description="copies of the model behind one address")] = None
    ep_size: Annotated[int | None, Meta(description="GPUs that share the experts")] = None
    mem_fraction_static: Annotated[
        float | None, Meta(description="share of the GPU's memory for weights and KV cache")
    ] = None
    max_running_requests: Annotated[int | None, Meta(description="most requests in one step")] = None
    max_total_tokens: Annotated[int | None, Meta(description="tokens in the KV cache")] = None
    chunked_prefill_size: Annotated[int | None, Meta(description="tokens of a prompt that are computed together")] = (
        None
    )
    schedule_policy: Annotated[str | None, Meta(description="order of requests in the engine")] = None
    page_size: Annotated[int | None, Meta(description="tokens in a page of the KV cache")] = None
    kv_cache_dtype: Annotated[str | None, Meta(description="data type of the KV cache")] = None
    disable_radix_cache: Annotated[bool | None, Meta(description="do not keep the KV cache of prompts")] = None
    disable_cuda_graph: Annotated[bool | None, Meta(description="starts sooner, runs slower")] = None
    enable_memory_saver: Annotated[bool | None, Meta(description="let the engine give its memory back")] = None
    enable_metrics: Annotated[bool | None, Meta(description="serve `/metrics`")] = None
    dtype: Annotated[str | None, Meta(description="data type of weights and activations")] = None
    quantization: Annotated[str | None, Meta(description="how the weights are quantised")] = None
    device: Annotated[str | None, Meta(description="`cuda`, `cpu` ...")] = None
    attention_backend: Annotated[str | None, Meta(description="implementation of attention")] = None
    trust_remote_code: Annotated[bool | None, Meta(description="run code that comes with the model")] = None
    is_embedding: Annotated[bool | None, Meta(description="compute embeddings")] = None
    chat_template: Annotated[str | None, Meta(description="name or file of a chat template")] = None
    tool_call_parser: Annotated[str | None, Meta(description="form of the model's tool calls")] = None
    reasoning_parser: Annotated[str | None, Meta(description="form of the model's thoughts")] = None
    disaggregation_mode: Annotated[
        Literal["null", "prefill", "decode"] | None, Meta(description="part of a request that it computes")
    ] = None
    disaggregation_bootstrap_port: Annotated[
        int | None, Meta(description="port at which decode servers find a prefill server")
    ] = None
    disaggregation_transfer_backend: Annotated[str | None, Meta(description="how the KV cache is transferred")] = None
    disaggregation_ib_device: Annotated[str | None, Meta(description="InfiniBand devices")] = None
