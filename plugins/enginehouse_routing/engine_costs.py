"""What each engine is expected to cost a request, learned from answers. Compiled: it runs for every request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import exp, inf, sqrt
from typing import Final, NamedTuple

from enginehouse import Candidate
from enginehouse_routing.cost_row import FEW, OVERHEAD, CostRow, crowd, rate_beside, work
from enginehouse_routing.learned_rate import EngineState, LearnedRate

_FIRST_RATE: Final = 1e-4
"""Seconds for a token, before any engine has answered."""
_DELAY: Final = 0.25
"""What a token that is read costs each request that runs there, in its own time: they go on in the same steps."""
_STEP_TOKENS: Final = 64
"""Tokens for each other request. It makes a step longer, even if its prompt has been read."""
_MISSED_TURNS: Final = 3
"""After so many turns that an engine missed, 63 % of what it was slower is forgotten: it may have been so only once."""
_NEAR: Final = 1.05
_NEAR_S: Final = 0.001
"""Costs that differ by less are equal: what was learned is not more exact."""
_MOST_CHANGES: Final = 4096
_GONE_TURNS: Final = 30
"""An engine that missed so many turns is probably gone; what was learned of it would count for nothing."""
_MOST_ENGINES: Final = 4096
_MOST_KEPT: Final = 65_536
"""In all rows that are kept: about 20 MB."""


class CostParts(NamedTuple):
    """The expected seconds to the first token, in parts.

    ``wait``: for a slot, a load, or the prompts of others. ``own``: for the prompt. ``harm``: what it costs the others.
    """

    wait: float
    own: float
    harm: float


class EngineCosts:
    """Learns what engines cost, by backend, and finds the cheapest candidate.

    ``loading``: for each host, the replicas that requests wait for there and the seconds that their loads take.
    ``waiting``: the requests that wait for a slot of any engine, by model.
    """

    def __init__(self, priority_s: float) -> None:
        self._priority_s = priority_s
        self._engines: OrderedDict[str, EngineState] = OrderedDict()
        """The one that was used least recently comes first."""
        self._all = LearnedRate()
        self._turn = 0
        self._changed: list[str] = []
        self._forgotten = 0
        """The changes before ``_changed``."""
        self._rows: dict[str, CostRow] = {}
        self._kept = 0
        self._last: CostRow | None = None
        self.loading: dict[str, dict[str, float]] = {}
        self.waiting: Mapping[str, int] = {}

    def engine(self, backend: str) -> EngineState:
        """What is known of the engine of ``backend``."""
        known = self._engines.get(backend)
        if known is None:
            self._forget_gone()
            known = self._engines[backend] = EngineState(backend)
        return known

    def _forget_gone(self) -> None:
        """Forget the engine that was used least recently if it is probably gone, or if there are too many."""
        oldest, number = next(iter(self._engines.values()), None), len(self._engines)
        if oldest and (number == _MOST_ENGINES or self._turn - oldest.used > _GONE_TURNS * number):
            del self._engines[oldest.backend]
            self._forget_rows()

    def learned(self) -> dict[str, dict[str, float]]:
        """What is known of each engine, by backend: times in milliseconds, the backlog in tokens."""
        return {
            backend: {
                "ms_per_token": round(1e3 * known.learned.per_token, 4),
                "slot_ms": round(1e3 * known.learned.in_slot, 1),
                "backlog_tokens": round(known.backlog),
            }
            for backend, known in self._engines.items()
        }

    def sums(self) -> dict[str, tuple[float, float, float, float]]:
        """What was learned of each engine, by backend; of all of them, by an empty name."""
        return {"": self._all.sums, **{backend: known.learned.sums for backend, known in self._engines.items()}}

    def recall(self, sums: Mapping[str, tuple[float, float, float, float]]) -> None:
        """Go on from what another one had learned, as ``sums`` returned it."""
        for backend, each in sums.items():
            (self.engine(backend).learned if backend else self._all).recall(each)
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._rows.clear()
        self._kept, self._last = 0, None

    @property
    def were_plain(self) -> bool:
        """Whether all candidates of the last pick were ready, and none an adapter."""
        return self._last is not None and self._last.plain

    def used(self, backend: str) -> EngineState:
        """Note that a request goes to ``backend``. Return what is known of its engine."""
        engine = self.engine(backend)
        trust = self._trust(engine)
        if trust < 1:
            engine.learned.fade(trust**2)  # the square: an old time may be a hundred times too long
        self._turn += 1
        engine.used = self._turn
        self._engines.move_to_end(backend)
        self._changes(engine)
        return engine

    def _trust(self, engine: EngineState) -> float:
        """How much what was learned of ``engine`` still counts, from 0 to 1: the less, the longer it was not used."""
        missed, round = self._turn - engine.used, len(self._engines)
        return exp(-missed / (_MISSED_TURNS * round)) if missed > round else 1.0

    def expect(self, engine: EngineState, tokens: float) -> None:
        """Add ``tokens`` to the engine's backlog; take them away if they are negative."""
        engine.backlog += tokens
        self._changes(engine)

    def answered(self, engine: EngineState, seconds: float, tokens: float) -> None:
        """Learn from a first token that came ``seconds`` after its request was sent."""
        engine.learned.answered(seconds, tokens + OVERHEAD)
        self._all.answered(seconds, tokens + OVERHEAD)
        self._changes(engine)

    def ended(self, engine: EngineState, seconds: float) -> None:
        """Learn from a request that held its slot for so many ``seconds``."""
        engine.learned.ended(seconds)
        self._all.ended(seconds)
        self._changes(engine)

    def pick(self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float) -> Candidate:
        """The cheapest candidate; of those that are about equal, the one that was used least recently.

        ``cached``: the tokens of the prompt that engines have, by replica; ``tokens``: of the whole prompt.
        """
        row = self._last
        if row is None or row.candidates is not candidates:
            self._last = row = self._row(candidates)
        few = len(candidates) <= FEW
        costs = self._computed_anew(row, cached, tokens) if few else self._computed(row, cached, tokens)
        limit = min(costs) * _NEAR + _NEAR_S
        chosen, least = candidates[0], -1
        for place, cost in enumerate(costs):
            if cost <= limit:
                known = row.engines[place] or self._known(row, place)
                used = known.used if known is not None else 0
                if least < 0 or used < least:
                    chosen, least = candidates[place], used
        return chosen

    def last_cost(self, candidate: Candidate) -> float | None:
        """What ``candidate`` cost when the last one was picked; ``None`` if it was not among the candidates."""
        row = self._last
        place = row.places.get(candidate.backend) if row is not None else None
        if row is None or place is None or row.candidates[place] is not candidate:
            return None
        return row.costs[place]

    def explained(
        self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float
    ) -> list[tuple[float, CostParts]]:
        """What each candidate costs in all, with what a worse priority adds, and in parts."""
        row = CostRow(candidates, self._priority_s)
        costs = self._computed(row, cached, tokens)
        return [
            (costs[place], self._parts(row, place, min(tokens, cached.get(each.replica, 0)), tokens))
            for place, each in enumerate(candidates)
        ]

    def _parts(self, row: CostRow, place: int, cached: float, tokens: float) -> CostParts:
        rate = row.beside[place]
        own = tokens - cached
        harm = work(own, row.factors[place] + self._crowd(row)) - own
        wait = row.waits[place] - row.worse[place] + rate * row.ahead[place]
        return CostParts(wait + self.adapter_s(row.candidates[place]), rate * (own + OVERHEAD), rate * harm)

    def _crowd(self, row: CostRow) -> float:
        """How much more tokens count because requests wait for which there is no free slot."""
        if not self.waiting:
            return 0.0
        waiting = self.waiting.get(row.candidates[0].model, 0)
        if not waiting:
            return 0.0
        for load in row.loads:
            waiting -= max(0, load.slots - load.pending)
        return crowd(max(0, waiting), len(row.candidates))

    def _row(self, candidates: Sequence[Candidate]) -> CostRow:
        """The row of ``candidates``. It is kept for the next decision, and not too many of others."""
        model = candidates[0].model
        before = self._rows.get(model)
        if before is not None and before.is_of(candidates):
            return before
        row = CostRow(candidates, self._priority_s)
        self._rows.pop(model, None)
        self._kept += len(row.candidates) - (len(before.candidates) if before is not None else 0)
        if self._kept > _MOST_KEPT:
            self._rows.clear()
            self._kept = len(row.candidates)
        self._rows[model] = row
        return row

    def _computed(self, row: CostRow, cached: Mapping[str, int], tokens: float) -> list[float]:
        """The costs of a row, once what may have changed there is computed anew."""
        since = row.seen - self._forgotten
        places = row.stale(self._changed[since:]) if since >= 0 else range(len(row.candidates))
        row.seen = self._forgotten + len(self._changed)
        for place in places:
            self._renew(row, place)
        row.settle(places)
        return self._with_adapters(row, row.compute(cached, tokens, self._crowd(row)))

    def _computed_anew(self, row: CostRow, cached: Mapping[str, int], tokens: float) -> list[float]:
        """What ``_computed`` returns, without reading or changing the columns of the row."""
        fastest, limited = 0.0, 0
        for place in range(len(row.engines)):
            limited |= row.loads[place].slots
            engine = row.engines[place] or self._known(row, place)
            if engine is not None and (own := engine.learned.per_token) and (own < fastest or not fastest):
                fastest = own
        costs: list[float] = []
        more = self._crowd(row) if limited else 0.0  # without slots, nobody waits for one
        for place, replica in enumerate(row.replicas):
            wait, ahead, factor, rate, trust = self._figures(row, place)
            unread = tokens
            if cached:
                there: int = cached.get(replica, 0)
                unread = tokens - there if there < tokens else 0.0
            read = ahead + OVERHEAD + work(unread, factor + more)
            costs.append(row.worse[place] + wait + rate_beside(rate, fastest, trust) * read)
        return self._with_adapters(row, costs)

    def _with_adapters(self, row: CostRow, costs: list[float]) -> list[float]:
        if row.adapters:
            costs = [cost + self.adapter_s(each) for cost, each in zip(costs, row.candidates, strict=True)]
        row.costs = costs
        return costs

    def _changes(self, engine: EngineState) -> None:
        """Note that the costs of ``engine`` have changed."""
        if len(self._changed) == _MOST_CHANGES:
            self._forgotten += _MOST_CHANGES
            self._changed.clear()
        self._changed.append(engine.backend)

    def _renew(self, row: CostRow, place: int) -> None:
        """Compute the columns of a row anew at ``place``. ``row.settle`` must follow."""
        wait, row.ahead[place], row.factors[place], row.rates[place], row.trusts[place] = self._figures(row, place)
        row.waits[place] = wait + row.worse[place]
        engine = row.engines[place]
        learned = (engine.learned.per_token if engine is not None else 0) or inf
        if learned != row.learned[place]:
            row.learn(place, learned)

    def _known(self, row: CostRow, place: int) -> EngineState | None:
        """What is known of the engine at ``place``; ``None`` before anything is."""
        known = row.engines[place]
        if known is None:
            row.engines[place] = known = self._engines.get(row.candidates[place].backend)
        return known

    def _figures(self, row: CostRow, place: int) -> tuple[float, float, float, float, float]:
        """The seconds to wait, the tokens ahead, the factor, the rate and its trust, as the columns of a row."""
        load = row.loads[place]
        pending: int = load.pending
        slots: int = load.slots
        rate, in_slot, ahead, trust = self._all.per_token, self._all.in_slot, 0.0, 1.0
        engine = row.engines[place] or self._known(row, place)
        if engine is not None:
            learned, ahead = engine.learned, engine.backlog
            rate, in_slot = learned.per_token or rate, learned.in_slot or in_slot
            if self._turn - engine.used > len(self._engines):
                trust = self._trust(engine)
        wait = 0.0
        beside = pending
        if slots and pending >= slots:
            wait = (pending - slots + 1) * in_slot / slots
            beside, ahead = slots, 0.0
        if row.cold[place]:
            wait += self.load_s(row.candidates[place])
        running = float(beside) if beside <= 4 else 2 * sqrt(beside)
        return wait, ahead + _STEP_TOKENS * pending, 1 + _DELAY * running, rate or _FIRST_RATE, trust

    def adapter_s(self, candidate: Candidate) -> float:
        """Seconds until the engine of ``candidate`` has loaded its adapter; 0 if it has, or if it is no adapter."""
        if candidate.capabilities.parent is None:
            return 0.0
        engine = self._engines.get(candidate.backend) or EngineState(candidate.backend)
        return engine.adapter_s(candidate, self._all.in_slot)

    def load_s(self, candidate: Candidate) -> float:
        """Seconds until ``candidate``, which is not ready, can serve: its load, after those that its host has begun."""
        wake_s: float = candidate.wake_s
        others = self.loading.get(candidate.host)
        if others is None or candidate.replica in others:
            return wake_s
        return wake_s + sum(others.values())
