"""Reads facts about a model from its GGUF file, before a ``llama-server`` loads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginehouse import Capabilities
from enginehouse.drivers import LaunchSpec, ModelFacts
from enginehouse_llamacpp.gguf_header import read_gguf_header
from enginehouse_llamacpp.options import LlamaCppOptions

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_BYTES_PER_BLOCK = {
    "f32": 128,
    "f16": 64,
    "bf16": 64,
    "q8_0": 34,
    "q5_1": 24,
    "q5_0": 22,
    "q4_1": 20,
    "q4_0": 18,
    "iq4_nl": 18,
}
"""The size of 32 numbers in the KV cache (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""
_GREATEST, _MOST_BYTES = 1 << 31, 1 << 62
"""A file may say anything. Processes of the gateway tell each other what follows from it in integers of 64 bits."""
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""As ``LlamaFileType`` of the ``gguf`` package has them, without those that were removed from the format."""


def shards(path: Path) -> Sequence[Path]:
    """The files of a model: ``path``, or all shards of a model whose first one is ``path``."""
    if (found := _SHARD.fullmatch(path.name)) is None:
        return [path]
    count = int(found["count"])
    return [path.with_name(f"{found['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def model_facts(spec: LaunchSpec) -> ModelFacts:
    """The capabilities and the size of the model of ``spec``. Raises ``GgufError``."""
    options, path = spec.options_as(LlamaCppOptions), Path(spec.path)
    header = read_gguf_header(path)
    trained = _figure(header, "context_length")
    files = [*shards(path), *map(Path, options.weights)]
    size = sum(file.stat().st_size for file in files)
    context = options.whole_context(spec.context_length) or trained or 0
    return ModelFacts(
        capabilities=Capabilities(
            context_length=spec.context_length or (None if spec.args else trained),
            vision=True if options.mmproj else None,
            tools=renders_tools(header.get("tokenizer.chat_template")),
            embeddings=True if options.embedding or computes_embeddings(header) else None,
        ),
        quantization=quantization(header),
        memory=min(size + _kv_cache_bytes(header, options, context), _MOST_BYTES),
        size=size,
    )


def quantization(header: Mapping[str, Any]) -> str:
    """The type of most weights, under llama.cpp's name, such as ``Q4_K_M``; empty if the file has no known one."""
    number = header.get("general.file_type")
    return FILE_TYPES.get(number, "") if isinstance(number, int) else ""


def renders_tools(template: object) -> bool | None:
    """Whether a chat template mentions tools; ``None`` if not, because llama.cpp can do without the template."""
    return True if isinstance(template, str) and re.search(r"\btools\b", template) else None


def computes_embeddings(header: Mapping[str, Any]) -> bool:
    """Whether the model was made for embeddings: the file says how to pool them, but not for reranking."""
    return _value(header, "pooling_type") in (1, 2, 3)  # mean, cls, last; 4 is rank


def reranks(header: Mapping[str, Any]) -> bool:
    """Whether the model was made for reranking."""
    return bool(_value(header, "pooling_type") == 4)


def _kv_cache_bytes(header: Mapping[str, Any], options: LlamaCppOptions, context: int) -> int:
    """The bytes of the KV cache: a key and a value of each layer and KV head, for each token of the context.

    Too much for models whose layers see a window only, or keep a state instead.
    """
    layers, heads = _figure(header, "block_count") or 0, _figure(header, "attention.head_count") or 1
    kv_heads = _kv_heads(_value(header, "attention.head_count_kv"), layers, heads)
    head = (_figure(header, "embedding_length") or 0) // heads
    key = _figure(header, "attention.key_length") or head
    value = _figure(header, "attention.value_length") or head
    key_bytes = key * _BYTES_PER_BLOCK[options.cache_type_k or "f16"] // 32
    value_bytes = value * _BYTES_PER_BLOCK[options.cache_type_v or "f16"] // 32
    return context * kv_heads * (key_bytes + value_bytes)


def _kv_heads(per_layer: object, layers: int, heads: int) -> int:
    """The KV heads of all layers together. A file has one number for all layers, one for each, or none."""
    if isinstance(per_layer, list):
        return sum(value for value in per_layer if isinstance(value, int))
    return layers * (per_layer if isinstance(per_layer, int) else heads)


def _figure(header: Mapping[str, Any], key: str) -> int | None:
    value = _value(header, key)
    values = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]
    greatest = max(values, default=0)
    return greatest if 0 < greatest <= _GREATEST else None


def _value(header: Mapping[str, Any], key: str) -> Any:
    return header.get(f"{header.get('general.architecture')}.{key}")
