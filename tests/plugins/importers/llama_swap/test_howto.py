from __future__ import annotations

import re

import tomli_w

from enginehouse_importers.llama_swap.convert import convert
from tests.support.paths import ROOT

PAGE = ROOT / "docs/how-to/coming-from/llama-swap.md"


def test_the_example_becomes_what_the_page_says() -> None:
    page = PAGE.read_text("utf-8")
    [yaml] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [toml] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    converted = convert(yaml)
    assert tomli_w.dumps(converted.config, multiline_strings=True) == toml
    assert {note.key for note in converted.notes} == {
        "CORS",
        "models.qwen.useModelName",
        "models.qwen.cmd",
        "models.embed.cmd",
    }
