"""A replay that notes where its requests go."""

from __future__ import annotations

from collections.abc import Iterable

from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest


class FollowedReplay(GatewayReplay):
    """``places``: the backend that each request reached last. ``codes``: how each ended; empty for a whole answer."""

    def __init__(self, trace: Iterable[TraceRequest], setting: Setting) -> None:
        super().__init__(trace, setting)
        self.places: dict[int, str] = {}
        self.codes: dict[int, str] = {}

    def routed(self, number: int, backend: str) -> None:
        self.places[number] = backend

    def ended(self, number: int, code: str) -> None:
        self.codes[number] = code
