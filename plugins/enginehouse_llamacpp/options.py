"""The options of a launched ``llama-server``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from enginehouse.drivers import EngineOptions, ThinkingFields

SWITCHES = ("embedding", "reranking")
"""Options without a negative flag."""
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
THINKING: Final = ThinkingFields(budget="thinking_budget_tokens", level_in_template=True)
"""Builds before b10453 read ``reasoning_effort`` only where it stands for the template (``server-common.cpp``)."""


class LlamaCppOptions(EngineOptions, frozen=True, forbid_unknown_fields=True):
    """Each is the flag of the same name; one that is left out is llama.cpp's own default.

    Their meaning: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """

    n_gpu_layers: Annotated[
        int | str | None, Meta(description='layers in the memory of the GPU: a number, `"auto"` or `"all"`')
    ] = None
    parallel: Annotated[int | None, Meta(description="slots: requests that are served at once")] = None
    kv_unified: Annotated[bool | None, Meta(description="all slots share one context")] = None
    cache_idle_slots: Annotated[
        bool | None, Meta(description="a request moves the caches of idle slots to main memory")
    ] = None
    threads: Annotated[int | None, Meta(description="threads for generation")] = None
    threads_batch: Annotated[int | None, Meta(description="threads for prompts")] = None
    batch_size: Annotated[int | None, Meta(description="tokens of a prompt that are processed together")] = None
    ubatch_size: Annotated[int | None, Meta(description="tokens that are computed together")] = None
    flash_attn: Annotated[Literal["on", "off", "auto"] | None, Meta(description="flash attention")] = None
    cache_type_k: Annotated[CacheType | None, Meta(description="data type of keys in the KV cache")] = None
    cache_type_v: Annotated[CacheType | None, Meta(description="data type of values in the KV cache")] = None
    cache_reuse: Annotated[int | None, Meta(description="shortest piece of a cached prompt that is used again")] = None
    split_mode: Annotated[
        Literal["none", "layer", "row", "tensor"] | None, Meta(description="how a model is split across GPUs")
    ] = None
    tensor_split: Annotated[str | None, Meta(description='share of each GPU: `"3,1"`')] = None
    main_gpu: Annotated[int | None, Meta(description="the GPU for everything that is not split")] = None
    load_mode: Annotated[str | None, Meta(description='how the file is read: `"auto"`, `"mmap"`, `"none"` ...')] = None
    warmup: Annotated[bool | None, Meta(description="run once before the first request")] = None
    embedding: Annotated[bool | None, Meta(description="compute embeddings")] = None
    reranking: Annotated[bool | None, Meta(description="rerank documents")] = None
    pooling: Annotated[
        Literal["none", "mean", "cls", "last", "rank"] | None, Meta(description="how embeddings are pooled")
    ] = None
    mmproj: Annotated[str | None, Meta(description="file of the multimodal projector, for images")] = None
    lora: Annotated[str | None, Meta(description="files of LoRA adapters, separated by commas")] = None
    model_draft: Annotated[str | None, Meta(description="file of a smaller model for speculative decoding")] = None
    jinja: Annotated[bool | None, Meta(description="use the model's own chat template")] = None
    chat_template: Annotated[str | None, Meta(description="name of a built-in chat template, or its text")] = None
    chat_template_file: Annotated[str | None, Meta(description="file of a chat template")] = None
    reasoning_format: Annotated[
        Literal["none", "auto", "deepseek", "deepseek-legacy"] | None,
        Meta(description="where the thoughts of a reasoning model go"),
    ] = None
    slot_save_path: Annotated[str | None, Meta(description="folder for saved slots")] = None

    @property
    def weights(self) -> list[str]:
        """The files that are loaded beside the model."""
        return [file for file in (self.mmproj, *(self.lora or "").split(","), self.model_draft) if file]

    def whole_context(self, context_length: int | None) -> int | None:
        """The context that all slots share so that a request in each may have ``context_length`` tokens.

        llama.cpp divides the context among its slots, unless these are unified.
        """
        slots = 1 if self.kv_unified else max(1, self.parallel or 1)  # -1: llama.cpp chooses, and unifies them
        return context_length * slots if context_length else None
