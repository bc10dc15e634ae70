"""What the file of a model tells is shown before its engine runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner

from enginehouse_kit.gateway import RunningGateway
from enginehouse_operations.status import models
from tests.support.gguf_header import write_gguf
from tests.support.plain_httpx import get

CONFIG = """
[routing.aliases]
other = "quantised"

[models.quantised]
driver = "llamacpp"
path = "{folder}/a.gguf"

[models.untold]
driver = "llamacpp"
path = "{folder}/b.gguf"
"""


def test_a_models_quantisation_is_listed(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", general__architecture="llama", general__file_type=15)
    write_gguf(tmp_path / "b.gguf", general__architecture="llama")
    with RunningGateway(CONFIG.format(folder=tmp_path)) as gateway:
        paths = [f"{gateway.url}/v1/models/{name}" for name in ("quantised", "untold")]
        gateway.until(lambda _: all("size" in get(path).json() for path in paths))
        listed = {card["id"]: card.get("quantization") for card in get(f"{gateway.url}/v1/models").json()["data"]}
        tags = get(f"{gateway.url}/api/tags").json()["models"]
        shown = CliRunner().invoke(models, ["--url", gateway.url])
        as_json = CliRunner().invoke(models, ["--url", gateway.url, "--json"])
    assert listed == {"quantised": "Q4_K_M", "other": "Q4_K_M", "untold": None}
    assert "Q4_K_M" in shown.output
    first, second = ((tmp_path / f"{name}.gguf").stat().st_size for name in "ab")
    assert {each["name"]: each["size"] for each in tags} == {"quantised": first, "other": first, "untold": second}
    cards = msgspec.json.decode(as_json.output)["data"]
    assert {card["id"]: card.get("quantization") for card in cards} == listed
