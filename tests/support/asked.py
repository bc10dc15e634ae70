"""Requests of the simulated engine's scheduler, and what is in them."""

from __future__ import annotations

from typing import Any

from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.request import RequestState


def new_state(**asked: Any) -> RequestState:
    """A request for what ``EngineCoreRequest`` has."""
    return RequestState(EngineCoreRequest(**asked))


def fields_of(value: object) -> dict[str, Any]:
    """The attributes of an object by their names, whether its class is compiled, has slots, or neither."""
    found = {name: getattr(value, name) for name, field in vars(type(value)).items() if hasattr(type(field), "__set__")}
    return {**found, **getattr(value, "__dict__", {})}
