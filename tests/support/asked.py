"""Requests of the simulated engine's scheduler."""

from __future__ import annotations

from typing import Any

from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.request import RequestState


def new_state(**asked: Any) -> RequestState:
    """A request for what ``EngineCoreRequest`` has."""
    return RequestState(EngineCoreRequest(**asked))
