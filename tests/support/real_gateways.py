"""Gateways in front of real engines. A test that asks for an engine that is not installed is skipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.paths import ROOT
from tests.support.real_engines import RealEngine, find_llama_server, find_vllm

VLLM_START_S = 600
"""On a busy machine, two vLLMs need this long one after the other."""
_VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
}


def llama_server() -> RealEngine:
    """The installed llama-server, with its model."""
    engine = find_llama_server()
    if engine is None:
        pytest.skip("no llama-server is installed: run `make engines`")
    return engine


def vllm(folder: Path) -> RealEngine:
    """The installed vLLM; the tiny model is written to ``folder``."""
    python = find_vllm()
    if python is None:
        pytest.skip("no vLLM is installed: run `make engines ENGINES=vllm`")
    subprocess.run([python, "-m", "tests.support.tiny_hf", folder], check=True, cwd=ROOT)
    return RealEngine(python, folder)


def llama_table(name: str, engine: RealEngine, *args: str, **keys: str) -> str:
    """The table of a model that one thread of llama-server serves; ``keys`` are TOML."""
    args_toml = ", ".join(f'"{arg}"' for arg in ("-t", "1", "--no-warmup", *args))
    return _table(name, {"driver": '"llamacpp"', "path": f'"{engine.model}"', "args": f"[{args_toml}]"} | keys)


def vllm_table(name: str, engine: RealEngine, *, options: str = "", **keys: str) -> str:
    """The table of a model that vLLM serves with 2048 tokens of context; ``options`` and ``keys`` are TOML."""
    shared = 'dtype = "float32", enforce_eager = true, block_size = 32'
    settings = {
        "driver": '"vllm"',
        "path": f'"{engine.model}"',
        "context_length": "2048",
        "options": f"{{ {shared}{', ' if options else ''}{options} }}",
        "start_timeout": f'"{VLLM_START_S}s"',
    }
    variables = "".join(f'{variable} = "{value}"\n' for variable, value in _VLLM_ENVIRONMENT.items())
    return f"{_table(name, settings | keys)}[models.{name}.env]\n{variables}"


def _table(name: str, settings: Mapping[str, str]) -> str:
    return f'[models."{name}"]\n' + "".join(f"{key} = {value}\n" for key, value in settings.items())


def gateway_for(engine: RealEngine, config: str, state: Path | None = None) -> RunningGateway:
    """A gateway that finds the program of ``engine``. ``state``: its state folder, to be used by the next one too."""
    kept = {} if state is None else {"ENGINEHOUSE_STATE_DIR": str(state)}
    return RunningGateway(config, {"PATH": f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}", **kept})


@contextmanager
def ready_gateway(engine: RealEngine, config: str, *models: str, timeout: float = 60) -> Iterator[RunningGateway]:
    """A gateway whose replicas of ``models`` are ready. They must be preloaded."""
    with gateway_for(engine, config) as gateway:

        def states() -> set[str]:
            return {each["state"] for each in gateway.status()["replicas"] if each["model"] in models}

        gateway.until(lambda _: states() <= {"ready", "failed"}, timeout=timeout)
        assert states() == {"ready"}, gateway.log
        yield gateway
