"""An import ends in bounded time and memory, whatever the file is."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse_importers import litellm, olla
from enginehouse_importers.commands import MOST_BYTES, read_text
from enginehouse_importers.kit.table import Converted
from enginehouse_importers.llama_swap import convert as llama_swap


def laughs(each: str) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * 9)}]"]
    lines += [f"a{level}: &a{level} [{', '.join([each.format(level - 1)] * 9)}]" for level in range(1, 10)]
    return "\n".join(lines)


MERGES = "\n".join(
    ["a0: &a0 {x: 1, y: 2}"]
    + [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 10)]
)
MACROS = "macros:\n  m0: xxxxxxxxxx\n" + "\n".join(f'  m{each}: "{f"${{m{each - 1}}}" * 10}"' for each in range(1, 12))
MODELS = '\nmodels:\n  a: {cmd: "${m11}"}'


@pytest.mark.parametrize("convert", [litellm.convert, olla.convert, llama_swap.convert])
@pytest.mark.parametrize(
    "text",
    [
        laughs("*a{}"),
        laughs("{{k: *a{}}}"),
        MERGES,
        "a: &a [*a]",
        "a: " + "[" * 50_000,
        "a: " + "{a: " * 50_000,
        "- " * 50_000,
    ],
    ids=["lists", "mappings", "merges", "itself", "deep", "deep-mapping", "deep-block"],
)
def test_a_document_that_explodes(convert: Callable[[str, str], Converted], text: str) -> None:
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ConfigError):
        convert(text, "config.yaml")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (time.process_time() - began < 20, peak < 100 << 20) == (True, True)


def test_macros_that_explode() -> None:
    with pytest.raises(ConfigError, match="its macros become more than"):
        llama_swap.convert(MACROS + MODELS, "config.yaml")


def test_a_file_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is longer than"):
        read_text(Path("/dev/zero"))
    file = tmp_path / "long.yaml"
    file.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match="is longer than"):
        read_text(file)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbfserver: {port: 1}")
    assert read_text(file) == "server: {port: 1}"
