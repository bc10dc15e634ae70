"""GGUF files that are broken, cut short, or made to take time and memory."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from enginehouse.drivers import LaunchSpec
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_llamacpp.found_models import find_models
from enginehouse_llamacpp.gguf_header import GgufError, read_gguf_header
from tests.support.gguf_header import gguf_text

HUGE = 1 << 62
BEGIN = b"GGUF" + struct.pack("<IQ", 3, 0)
ONE = BEGIN + struct.pack("<Q", 1) + gguf_text("a")


def write_model(file: Path) -> None:
    """A model of two tensors, each of 1,000 numbers of four bytes."""
    tensors = [gguf_text(f"t{n}") + struct.pack("<IQIQ", 1, 1000, 0, n * 4000) for n in range(2)]
    name = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 1) + name + b"".join(tensors)
    file.write_bytes(header + bytes(-len(header) % 32) + bytes(8000))


def listed(kind: int, length: int, *kinds: tuple[int, int]) -> bytes:
    return struct.pack("<I", 9) + b"".join(struct.pack("<IQ", *each) for each in [(kind, length), *kinds])


HEADERS = {
    "endless pairs": BEGIN + struct.pack("<Q", HUGE),
    "endless tensors": b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0),
    "endless texts": ONE + listed(8, HUGE),
    "endless numbers": ONE + listed(4, HUGE),
    "endless lists": ONE + listed(9, HUGE),
    "deep lists": ONE + listed(9, 1, *[(9, 1)] * 100_000),
    "a long text": ONE + struct.pack("<IQ", 8, HUGE),
    "many texts": ONE + listed(8, 1 << 30),
    "many lists": ONE + listed(9, 1 << 30),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_is_read_within_bounds_or_not_at_all(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(header)
    os.truncate(file, 4 << 30)  # sparse
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(GgufError, match=r"bad\.gguf"):
            read_gguf_header(file)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 10


def test_one_bad_file_leaves_the_others_of_its_folder(tmp_path: Path) -> None:
    for name, header in HEADERS.items():
        (tmp_path / f"{name}.gguf").write_bytes(header)
    write_model(tmp_path / "good.gguf")
    assert "good" in {each.name for each in find_models(tmp_path)}


def test_a_file_that_ends_within_its_header_says_so(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    write_model(file)
    os.truncate(file, 100)
    with pytest.raises(GgufError, match=r"is cut short or damaged: .*download it again"):
        read_gguf_header(file)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short_says_so(tmp_path: Path, share: float) -> None:
    file = tmp_path / "m.gguf"
    write_model(file)
    assert read_gguf_header(file)["general.architecture"] == "llama"
    os.truncate(file, int(file.stat().st_size * share))
    with pytest.raises(GgufError, match=r"is cut short: it has .* bytes"):
        read_gguf_header(file)


def number(key: str, value: int) -> bytes:
    return gguf_text(key) + struct.pack("<IQ", 10, value)


def nested(key: str) -> bytes:
    """A list of a list and of a text."""
    return gguf_text(key) + listed(9, 2, (4, 1)) + struct.pack("<IIQ", 3, 8, 1) + gguf_text("a")


@pytest.mark.parametrize(
    "figures",
    [
        [number(f"x.{key}", (1 << 64) - 1) for key in ("context_length", "block_count", "embedding_length")],
        [number(f"x.{key}", 1 << 31) for key in ("context_length", "block_count", "embedding_length")],
        [nested(f"x.{key}") for key in ("block_count", "attention.head_count_kv", "pooling_type")],
    ],
    ids=["of 64 bits", "of 31 bits", "lists"],
)
def test_figures_that_mean_nothing_harm_nobody(tmp_path: Path, figures: list[bytes]) -> None:
    """Processes of the gateway tell each other what follows from them in MessagePack."""
    file = tmp_path / "odd.gguf"
    name = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("x")
    file.write_bytes(BEGIN + struct.pack("<Q", 1 + len(figures)) + name + b"".join(figures))
    facts = LlamaCppDriver().inspect(LaunchSpec(model="m", path=str(file), port=1))
    assert msgspec.msgpack.encode(facts)
    assert [model.name for model in find_models(file)] == ["odd"]
