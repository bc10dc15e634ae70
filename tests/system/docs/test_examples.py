from __future__ import annotations

import re
from pathlib import Path

import pytest

from enginehouse.config.load_config import load_config
from tests.support.doc_pages import WRITTEN
from tests.support.paths import ROOT

PYPROJECT = re.compile(r"^\[(build-system|project)", re.MULTILINE)
FILES = [ROOT / "README.md", *WRITTEN]
BLOCKS = [
    pytest.param(block, id=f"{file.relative_to(ROOT)}-{number}")
    for file in FILES
    for number, block in enumerate(
        re.findall(r"^```toml\n(.*?)^```$", file.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    if not PYPROJECT.search(block)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_in_the_documentation_can_be_used(block: str, tmp_path: Path) -> None:
    for reference in re.findall(r'"file:([^"]+)"', block):
        secret = tmp_path / reference
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("a secret of its own: " + reference)
    file = tmp_path / "enginehouse.toml"
    file.write_text(block, encoding="utf-8")
    environ = {name: f"the secret {name}" for name in re.findall(r'"env:([^"]+)"', block)}
    assert load_config(file, environ).file == file


def test_the_documentation_has_examples() -> None:
    assert len(BLOCKS) >= 4
