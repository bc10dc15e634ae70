"""STATE.json: the state of a fleet in which a route is explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from enginehouse import ConfigError
from enginehouse.fleet.fleet import Fleet
from enginehouse.routing_facts import UNKNOWN


class BackendState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One backend. ``models``: the models of its engine, if they are not configured."""

    healthy: bool = True
    draining: bool = False
    pending: Annotated[int, msgspec.Meta(ge=0)] = 0
    avg_latency_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    error_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0
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


def impose(state: State, fleet: Fleet, listed: Mapping[str, Sequence[str]]) -> None:
    """Bring a new fleet into ``state``. ``listed`` has models of backends for which the state has none.

    Raises ``NotFound``, with the closest name, for a backend that the fleet does not have.
    """
    for name, backend in state.backends.items():
        fleet.load(name)  # raises for an unknown one
        if backend.draining:
            fleet.drain(name)
    for known in fleet.backends():
        backend = state.backends.get(known.name, BackendState())
        fleet.set_models(known.name, dict.fromkeys(backend.models or listed.get(known.name, ()), UNKNOWN))
        if backend.healthy:
            fleet.succeeded(known.name)
        else:
            fleet.mark_unhealthy(known.name, "")
        load = fleet.load(known.name)  # last: a backend that becomes healthy begins its average again
        load.pending, load.avg_latency_ms = backend.pending, backend.avg_latency_ms
        load.error_share = backend.error_share
