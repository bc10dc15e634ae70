"""The pages of operators: health, models, metrics, status, and the engine's memory."""

from __future__ import annotations

import time
from typing import Any

import msgspec

import enginehouse
from enginehouse import InvalidRequest, ModelNotFound
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.simulation import Simulation

_STARTED = int(time.time())


async def health(simulation: Simulation, call: Call) -> None:
    """Answer 200 while the engine takes requests, even asleep, and 503 after a failure."""
    await call.answer(b"", b"text/plain", 503 if simulation.engine.failure else 200)


async def version(simulation: Simulation, call: Call) -> None:
    """Report Enginehouse's version, which is also the simulated engine's."""
    await call.json({"version": enginehouse.__version__})


async def server_info(simulation: Simulation, call: Call) -> None:
    """Report the limits of the scheduler, as vLLM does in development mode."""
    constants = simulation.settings.core.constants
    limits = {"max_num_seqs": constants.max_num_seqs, "max_num_batched_tokens": constants.max_num_batched_tokens}
    await call.json({"vllm_config": {"scheduler_config": limits}})


async def metrics(simulation: Simulation, call: Call) -> None:
    """Report vLLM's metrics in Prometheus' text format."""
    await call.answer(simulation.metrics.page(), b"text/plain; version=0.0.4; charset=utf-8")


async def instance_status(simulation: Simulation, call: Call) -> None:
    """Report Llumnix's status and metadata of an instance, in one object."""
    reporter = simulation.status
    await call.json(msgspec.structs.asdict(reporter.metadata) | msgspec.structs.asdict(reporter.status()))


async def models(simulation: Simulation, call: Call) -> None:
    """List the served models and adapters."""
    settings = simulation.settings
    names = (*settings.models, *settings.loras)
    await call.json({"object": "list", "data": [_model(simulation, name) for name in names]})


async def model(simulation: Simulation, call: Call) -> None:
    """Describe one model. Raises ``ModelNotFound``."""
    name = call.path.removeprefix("/v1/models/")
    if name not in (*simulation.settings.models, *simulation.settings.loras):
        raise ModelNotFound(name)
    await call.json(_model(simulation, name))


def _model(simulation: Simulation, name: str) -> dict[str, Any]:
    settings = simulation.settings
    declared = {"vision": settings.vision, "tools": settings.tools, "json_mode": settings.json_mode}
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "enginehouse",
        "root": name,
        "parent": settings.models[0] if name in settings.loras else None,
        "max_model_len": settings.context_length,
        **{capability: value for capability, value in declared.items() if value is not None},
    }


async def sleep(simulation: Simulation, call: Call) -> None:
    """Abort all requests, and sleep at ``level`` 1 (weights in main memory) or 2 (weights dropped)."""
    level = call.parameter("level", "1")
    if level not in ("1", "2"):
        raise InvalidRequest(f"There is no sleep level {level!r}: use 1 or 2")
    simulation.engine.sleep(int(level))
    await call.answer(b"", b"text/plain")


async def wake_up(simulation: Simulation, call: Call) -> None:
    """End the sleep, and begin the requests that arrived in it."""
    simulation.engine.wake()
    await call.answer(b"", b"text/plain")


async def is_sleeping(simulation: Simulation, call: Call) -> None:
    """Report whether the engine sleeps."""
    await call.json({"is_sleeping": simulation.engine.sleep_level > 0})


async def reset_prefix_cache(simulation: Simulation, call: Call) -> None:
    """Drop all cached prefixes, unless blocks are in use."""
    await call.json({"success": simulation.engine.reset_prefix_cache()})
