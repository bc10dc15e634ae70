from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
import tomli_w

from enginehouse.config.foreign.llama_swap import convert
from enginehouse.config.load import load_config
from enginehouse.config.schema import Config


class Imported(NamedTuple):
    """What a llama-swap configuration came to: loaded by the real loader, and its notes by key."""

    config: Config
    notes: dict[str, str]
    warnings: tuple[str, ...]


Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Convert a llama-swap configuration, write it as TOML, and load that in this environment."""

    def imported(text: str, **environ: str) -> Imported:
        converted = convert(dedent(text), "config.yaml")
        file = tmp_path / "enginehouse.toml"
        file.write_text(tomli_w.dumps(converted.config, multiline_strings=True), encoding="utf-8")
        loaded = load_config(file, environ)
        notes: dict[str, str] = {}
        for key, note in ((each.key, each.note) for each in converted.notes):
            notes[key] = f"{notes[key]}; {note}" if key in notes else note
        return Imported(loaded.config, notes, loaded.warnings)

    return imported
