"""Real engines for tests, where they are installed: ``make engines`` brings them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

LLAMA_SERVER = "llama-server"
TINY_GGUF = "tiny.gguf"


class RealEngine(NamedTuple):
    """An engine's program and a model that it can serve."""

    program: Path
    model: Path


def engines_folder() -> Path:
    """The folder of the user's cache that holds the engines."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "enginehouse" / "engines"


def find_llama_server() -> RealEngine | None:
    """The llama-server that ``make engines`` built, with a tiny model; ``None`` where that has not been done."""
    engine = RealEngine(engines_folder() / LLAMA_SERVER, engines_folder() / TINY_GGUF)
    return engine if engine.program.exists() and engine.model.exists() else None
