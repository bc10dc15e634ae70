from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import tomli_w

from enginehouse.config.load_config import load_config
from enginehouse_importers.llama_swap.convert import convert
from tests.support.advice import advice
from tests.support.imported_config import Import, ImportedConfig


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def imported(text: str, **environ: str) -> ImportedConfig:
        converted = convert(dedent(text), "config.yaml")
        file = tmp_path / "enginehouse.toml"
        file.write_text(tomli_w.dumps(converted.config, multiline_strings=True), encoding="utf-8")
        loaded = load_config(file, environ)
        notes: dict[str, str] = {}
        for key, note in ((each.key, each.note) for each in converted.notes):
            notes[key] = f"{notes[key]}; {note}" if key in notes else note
        assert notes.pop("CORS")  # of every file, for it is no key
        return ImportedConfig(loaded.config, notes, (*loaded.warnings, *advice(loaded.config)))

    return imported
