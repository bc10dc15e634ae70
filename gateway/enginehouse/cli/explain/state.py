"""STATE.json: how the fleet is supposed to be when a decision is explained."""

from __future__ import annotations

from typing import Annotated

import msgspec

from enginehouse.domain.capabilities import UNKNOWN
from enginehouse.domain.errors import ConfigError
from enginehouse.fleet.fleet import Fleet


class BackendState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One backend. ``models``: what its engine serves, for a backend whose configuration does not say."""

    healthy: bool = True
    draining: bool = False
    pending: Annotated[int, msgspec.Meta(ge=0)] = 0
    avg_latency_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    models: list[str] = []


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. A backend that it leaves out is healthy and idle."""

    backends: dict[str, BackendState] = {}


def read_state(text: bytes, file: str) -> State:
    """The state in ``text``. Raises ``ConfigError``, naming ``file``, for anything else."""
    try:
        return msgspec.json.decode(text, type=State)
    except msgspec.DecodeError as error:
        expected = '{"backends": {"gpu-1": {"healthy": true, "pending": 0, "avg_latency_ms": 0}}}'
        raise ConfigError(f"is not the state of a fleet: {error}", file=file, remedy=f"write {expected}") from None


def impose(state: State, fleet: Fleet) -> None:
    """Bring a fleet of which nothing is known yet into ``state``.

    Raises ``NotFound``, with the name that may have been meant, if the state has a backend that the fleet has not.
    """
    for name, backend in state.backends.items():
        load = fleet.load(name)
        load.pending, load.avg_latency_ms = backend.pending, backend.avg_latency_ms
        fleet.set_models(name, dict.fromkeys(backend.models, UNKNOWN))
        if backend.draining:
            fleet.drain(name)
    for known in fleet.backends():
        if state.backends.get(known.name, BackendState()).healthy:
            fleet.succeeded(known.name)
        else:
            fleet.gone(known.name, "so says the given state")
