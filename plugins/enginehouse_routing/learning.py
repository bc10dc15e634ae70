"""One request of ``cache_aware`` at its engine, from which the strategy learns how fast the engine is."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse import Candidate, Placement
from enginehouse_routing.engine_costs import EngineCosts


class Learning(Placement):
    """A request at one engine: part of its backlog until the answer begins, then an example to learn from."""

    __slots__ = (
        *("_adapter", "_ahead", "_at", "_chosen", "_costs", "_engine", "_granted", "_now", "_tokens", "_waits"),
        *("_wake_s", "tokens_of"),
    )

    def __init__(self, costs: EngineCosts, now: Callable[[], float], chosen: Candidate, tokens: int) -> None:
        self._costs = costs
        self._now = now
        self._engine = costs.engine(chosen.backend)
        self._tokens = tokens
        self.tokens_of: Callable[[], None] | None = None
        self._granted = self._ahead = 0.0
        self._at = self._waits = False
        self._chosen = chosen
        self._wake_s = chosen.wake_s
        self._adapter = (chosen.name_there or chosen.model) if chosen.capabilities.parent is not None else ""

    def queued(self) -> None:
        if self._wake_s:
            self._costs.loading.setdefault(self._chosen.host, {})[self._chosen.replica] = self._wake_s
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
        loading = self._costs.loading
        if loading and (there := loading.get(self._chosen.host)) is not None:
            there.pop(self._chosen.replica, None)
