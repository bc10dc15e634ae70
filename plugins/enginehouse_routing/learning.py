"""One request of ``cache_aware`` at its engine, from which the strategy learns how fast the engine is."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse import Candidate, Placement
from enginehouse_routing.engine_costs import EngineCosts
from enginehouse_routing.learned_rate import EngineState


class Learning(Placement):
    """A request at one engine: part of its backlog until the answer begins, then an example to learn from."""

    __slots__ = (
        *("_adapter", "_ahead", "_at", "_costs", "_engine", "_granted", "_now", "_tokens", "_waits", "_waking"),
        "tokens_of",
    )

    def __init__(self, costs: EngineCosts, now: Callable[[], float], engine: EngineState, tokens: int) -> None:
        self._costs = costs
        self._now = now
        self._engine = engine
        self._tokens = tokens
        self.tokens_of: Callable[[], None] | None = None
        self._granted = self._ahead = 0.0
        self._at = self._waits = False
        self._waking: Candidate | None = None
        self._adapter = ""

    def take_note_of(self, chosen: Candidate) -> None:
        """Follow the load of the replica too, and its adapter, if it needs a load or is an adapter."""
        self._waking = chosen if chosen.wake_s else None
        self._adapter = (chosen.name_there or chosen.model) if chosen.capabilities.parent is not None else ""

    def queued(self) -> None:
        waking = self._waking
        if waking is not None:
            self._costs.loading.setdefault(waking.host, {})[waking.replica] = waking.wake_s
        self._costs.expect(self._engine, self._tokens)
        self._waits = True
        if self._adapter:
            self._engine.begin_adapter(self._adapter)

    def granted(self) -> None:
        self._granted, self._at = self._now(), True
        self._ahead = max(0.0, self._engine.backlog - self._tokens)
        self._loaded()

    def first_byte(self) -> None:
        if self._at:
            self._costs.answered(self._engine, self._now() - self._granted, self._tokens + self._ahead)
        self._answered()
        if self.tokens_of is not None:
            self.tokens_of()
            self.tokens_of = None

    def ended(self) -> None:
        if self._at and not self._waits:
            self._costs.ended(self._engine, self._now() - self._granted)
        self._answered()
        self._loaded()
        if self._adapter:
            self._engine.end_adapter(self._adapter)

    def _answered(self) -> None:
        if self._waits:
            self._waits = False
            self._costs.expect(self._engine, -self._tokens)

    def _loaded(self) -> None:
        waking = self._waking
        if waking is not None and (there := self._costs.loading.get(waking.host)) is not None:
            there.pop(waking.replica, None)
