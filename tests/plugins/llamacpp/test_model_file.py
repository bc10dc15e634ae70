"""GGUF files as the driver reads them before a launch."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from enginehouse import Capabilities
from enginehouse.drivers import LaunchSpec
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_llamacpp.gguf_header import GgufError, read_gguf_header
from enginehouse_llamacpp.model_file import FILE_TYPES
from enginehouse_llamacpp.options import LlamaCppOptions
from tests.support.gguf_header import gguf_text, write_gguf
from tests.support.real_gateways import llama_server

LLAMA: dict[str, Any] = {
    "general__architecture": "llama",
    "llama__context_length": 8192,
    "llama__block_count": 32,
    "llama__embedding_length": 4096,
    "llama__attention__head_count": 32,
    "llama__attention__head_count_kv": 8,
    "tokenizer__ggml__tokens": ["a", "long", "list"],
    "tokenizer__ggml__scores": [0.5] * 2000,
    "tokenizer__ggml__add_bos_token": True,
    "tokenizer__chat_template": "{% if tools %}{{ tools }}{% endif %}{{ messages }}",
}
KV_BYTES_PER_TOKEN = 32 * 8 * 128 * 2 * 2
"""Layers, KV heads, their length, a key and a value, two bytes each."""


def test_a_header_is_read_and_long_lists_are_stepped_over(tmp_path: Path) -> None:
    header = read_gguf_header(write_gguf(tmp_path / "m.gguf", **LLAMA))
    assert header["llama.context_length"] == 8192
    assert header["tokenizer.ggml.tokens"] is None
    assert header["tokenizer.ggml.scores"] is None
    assert header["tokenizer.ggml.add_bos_token"] is True
    assert str(header["tokenizer.chat_template"]).startswith("{% if tools %}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"GGML" + bytes(20), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version is 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 4), "m.gguf is cut short or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "ends within its metadata"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_text("key") + struct.pack("<I", 99), "m.gguf cannot be read"),
    ],
)
def test_a_file_that_is_broken_says_so(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(GgufError, match=problem):
        read_gguf_header(tmp_path / "m.gguf")


def test_the_file_tells_the_context_the_tools_and_the_size(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", size=100_000, **LLAMA)
    facts = LlamaCppDriver().inspect(LaunchSpec(model="m", path=str(path), port=0))
    assert facts.capabilities == Capabilities(context_length=8192, tools=True)
    assert facts.memory == 100_000 + 8192 * KV_BYTES_PER_TOKEN


@pytest.mark.parametrize(("number", "name"), [(15, "Q4_K_M"), (0, "F32"), (38, "MXFP4_MOE"), (1024, ""), (None, "")])
def test_the_file_tells_its_quantisation(tmp_path: Path, number: int | None, name: str) -> None:
    more = {} if number is None else {"general__file_type": number}
    path = write_gguf(tmp_path / "m.gguf", **LLAMA, **more)
    assert LlamaCppDriver().inspect(LaunchSpec(model="m", path=str(path), port=1)).quantization == name


def test_the_file_types_are_those_of_the_gguf_package() -> None:
    types = pytest.importorskip("gguf").LlamaFileType
    known = {each.value: each.name.removeprefix("MOSTLY_").removeprefix("ALL_") for each in types}
    assert {number: known[number] for number in FILE_TYPES if number in known} == {
        number: name for number, name in FILE_TYPES.items() if number in known
    }


def test_a_configured_context_and_smaller_numbers_take_less(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", size=100_000, **LLAMA)
    options = LlamaCppOptions(cache_type_k="q8_0", cache_type_v="q8_0", parallel=2)
    spec = LaunchSpec(model="m", path=str(path), port=0, context_length=1024, options=options)
    facts = LlamaCppDriver().inspect(spec)
    assert facts.capabilities.context_length == 1024
    assert facts.memory == 100_000 + 2 * 1024 * KV_BYTES_PER_TOKEN * 34 // 64


def test_each_layer_may_have_its_own_number_of_heads(tmp_path: Path) -> None:
    heads = [0] * 16 + [8] * 16
    path = write_gguf(tmp_path / "m.gguf", size=100_000, **{**LLAMA, "llama__attention__head_count_kv": heads})
    facts = LlamaCppDriver().inspect(LaunchSpec(model="m", path=str(path), port=0))
    assert facts.memory == 100_000 + 8192 * KV_BYTES_PER_TOKEN // 2


def test_arguments_make_the_context_uncertain(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", **LLAMA)
    facts = LlamaCppDriver().inspect(LaunchSpec(model="m", path=str(path), port=0, args=["-c", "131072"]))
    assert facts.capabilities.context_length is None


def test_an_embedding_model_and_a_template_without_tools(tmp_path: Path) -> None:
    bert: dict[str, Any] = {"general__architecture": "bert", "bert__context_length": 512, "bert__pooling_type": 1}
    path = write_gguf(tmp_path / "e.gguf", **bert, tokenizer__chat_template="{{ messages }}")
    facts = LlamaCppDriver().inspect(LaunchSpec(model="e", path=str(path), port=0))
    assert facts.capabilities == Capabilities(context_length=512, embeddings=True)


def test_all_shards_and_the_projector_count(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_gguf(tmp_path / f"m-0000{number}-of-00003.gguf", size=1000, **{"general__architecture": "llama"})
    write_gguf(tmp_path / "mmproj.gguf", size=500)
    options = LlamaCppOptions(mmproj=str(tmp_path / "mmproj.gguf"))
    spec = LaunchSpec(model="m", path=str(tmp_path / "m-00001-of-00003.gguf"), port=0, options=options)
    assert LlamaCppDriver().why_not(spec) == ""
    facts = LlamaCppDriver().inspect(spec)
    assert (facts.memory, facts.capabilities.vision) == (3500, True)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    assert "there is no file" in LlamaCppDriver().why_not(spec)
    assert "m-00002-of-00003.gguf" in LlamaCppDriver().why_not(spec)


@pytest.mark.engine
def test_a_real_file_is_read_as_its_own_library_reads_it() -> None:
    engine = llama_server()
    facts = LlamaCppDriver().inspect(LaunchSpec(model="tiny", path=str(engine.model), port=0))
    assert facts.capabilities.context_length == 8192
    assert facts.memory == engine.model.stat().st_size + 8192 * 4 * 2 * 32 * 2 * 2  # layers, KV heads, length


def test_each_of_several_adapters_is_a_file(tmp_path: Path) -> None:
    adapters = [tmp_path / name for name in ("a.gguf", "b.gguf")]
    for adapter in adapters:
        adapter.write_bytes(bytes(1000))
    model = write_gguf(tmp_path / "m.gguf", **LLAMA)
    options = LlamaCppOptions(lora=",".join(map(str, adapters)))
    spec = LaunchSpec(model="m", path=str(model), port=1, options=options)
    driver = LlamaCppDriver()
    assert not driver.why_not(spec)
    assert driver.inspect(spec).size == model.stat().st_size + 2000
