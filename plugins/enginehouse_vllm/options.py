"""The options of a launched vLLM server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from enginehouse.drivers import EngineOptions

Table = dict[str, Any]


class VllmOptions(EngineOptions, frozen=True, forbid_unknown_fields=True):
    """Each is the flag of the same name; one that is left out is vLLM's own default.

    Their meaning: https://docs.vllm.ai/en/latest/cli/serve.html
    """

    tensor_parallel_size: Annotated[int | None, Meta(description="GPUs that share each layer")] = None
    pipeline_parallel_size: Annotated[int | None, Meta(description="GPUs that hold layers one after the other")] = None
    data_parallel_size: Annotated[int | None, Meta(description="copies of the model behind one address")] = None
    enable_expert_parallel: Annotated[bool | None, Meta(description="spread the experts of a model")] = None
    gpu_memory_utilization: Annotated[float | None, Meta(description="share of the GPU's memory to take")] = None
    kv_cache_dtype: Annotated[str | None, Meta(description="data type of the KV cache")] = None
    block_size: Annotated[int | None, Meta(description="tokens in a block of the KV cache")] = None
    cpu_offload_gb: Annotated[float | None, Meta(description="GiB of weights that stay in main memory")] = None
    max_num_seqs: Annotated[int | None, Meta(description="most requests in one step")] = None
    max_num_batched_tokens: Annotated[int | None, Meta(description="most tokens in one step")] = None
    enable_prefix_caching: Annotated[bool | None, Meta(description="keep the KV cache of prompts")] = None
    enable_chunked_prefill: Annotated[bool | None, Meta(description="compute long prompts in pieces")] = None
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"] | None, Meta(description="order of requests in the engine")
    ] = None
    dtype: Annotated[str | None, Meta(description="data type of weights and activations")] = None
    quantization: Annotated[str | None, Meta(description="how the weights are quantised")] = None
    enforce_eager: Annotated[bool | None, Meta(description="no CUDA graphs: starts sooner, runs slower")] = None
    load_format: Annotated[str | None, Meta(description="format of the weights' files")] = None
    trust_remote_code: Annotated[bool | None, Meta(description="run code that comes with the model")] = None
    tokenizer: Annotated[str | None, Meta(description="folder or name of another tokenizer")] = None
    runner: Annotated[Literal["auto", "generate", "pooling"] | None, Meta(description="what the model does")] = None
    chat_template: Annotated[str | None, Meta(description="file of a chat template, or its text")] = None
    enable_auto_tool_choice: Annotated[bool | None, Meta(description="let the model call tools")] = None
    tool_call_parser: Annotated[str | None, Meta(description="form of the model's tool calls")] = None
    reasoning_parser: Annotated[str | None, Meta(description="form of the model's thoughts")] = None
    limit_mm_per_prompt: Annotated[Table | None, Meta(description="most images, videos ... in a prompt")] = None
    enable_lora: Annotated[bool | None, Meta(description="accept LoRA adapters")] = None
    lora_modules: Annotated[list[str] | None, Meta(description='LoRA adapters: `"name=path"`')] = None
    speculative_config: Annotated[Table | None, Meta(description="speculative decoding")] = None
    sleep_level: Annotated[
        Literal[1, 2] | None,
        Meta(description="no flag: 1 keeps the weights in main memory (default), 2 reads them again after a sleep"),
    ] = None
    kv_transfer_config: Annotated[Table | None, Meta(description="connector between prefill and decode")] = None
    kv_events_config: Annotated[Table | None, Meta(description="where events of the KV cache are published")] = None
    hf_overrides: Annotated[Table | None, Meta(description="changes to the model's `config.json`")] = None
    seed: Annotated[int | None, Meta(description="seed of the sampling")] = None
    enable_prompt_tokens_details: Annotated[bool | None, Meta(description="report cached tokens in the usage")] = None
    enable_server_load_tracking: Annotated[bool | None, Meta(description="count requests for `/load`")] = None
