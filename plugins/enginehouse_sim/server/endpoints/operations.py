"""What an operator or a gateway asks: health, models, metrics, load, tokens."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from enginehouse import InvalidRequest, ModelNotFound, __version__
from enginehouse_sim.server.call import Call
from enginehouse_sim.server.prompts import Message, render_chat
from enginehouse_sim.server.simulation import Simulation
from enginehouse_sim.text import pieces, token_id

_STARTED = int(time.time())


class TokenizeBody(msgspec.Struct):
    """What is read of a tokenize request: ``prompt``, or ``messages``."""

    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool = False


async def health(simulation: Simulation, call: Call) -> None:
    """200: the engine can take requests."""
    await call.answer(b"", b"text/plain")


async def version(simulation: Simulation, call: Call) -> None:
    """The version of the simulated engine."""
    await call.json({"version": __version__})


async def load(simulation: Simulation, call: Call) -> None:
    """The number of requests that run or wait."""
    figures = simulation.engine.figures()
    await call.json({"server_load": figures.running + figures.waiting})


async def metrics(simulation: Simulation, call: Call) -> None:
    """Prometheus metrics."""
    page = simulation.metrics.render(simulation.engine.figures())
    await call.answer(page.encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def models(simulation: Simulation, call: Call) -> None:
    """All models."""
    await call.json({"object": "list", "data": [_model(simulation, name) for name in simulation.settings.models]})


async def model(simulation: Simulation, call: Call) -> None:
    """One model."""
    name = call.path.removeprefix("/v1/models/")
    if name not in simulation.settings.models:
        raise ModelNotFound(name)
    await call.json(_model(simulation, name))


async def tokenize(simulation: Simulation, call: Call) -> None:
    """The tokens of a text or a conversation."""
    body = call.decode(TokenizeBody)
    text = render_chat(body.messages) if body.messages is not None else body.prompt
    if text is None:
        raise InvalidRequest("Send 'prompt' or 'messages'")
    found = pieces(text)
    await call.json(
        {
            "count": len(found),
            "max_model_len": simulation.settings.context_length,
            "tokens": [token_id(piece) for piece in found],
            "token_strs": found if body.return_token_strs else None,
        }
    )


def _model(simulation: Simulation, name: str) -> dict[str, Any]:
    settings = simulation.settings
    declared = {"vision": settings.vision, "tools": settings.tools, "json_mode": settings.json_mode}
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "enginehouse",
        "root": name,
        "parent": None,
        "max_model_len": settings.context_length,
        **{capability: value for capability, value in declared.items() if value is not None},
    }
