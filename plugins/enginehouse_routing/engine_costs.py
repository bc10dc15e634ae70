"""What each engine is expected to cost a request. Compiled: it runs for every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from typing import Final, NamedTuple

from enginehouse import Candidate
from enginehouse_routing.cost_row import ALIKE, FEW, CostRow, crowd, lags, rate_beside, work
from enginehouse_routing.known_engines import FIRST_RATE, OVERHEAD, EngineState, KnownEngines

_DELAY: Final = 0.25
"""What a token that is read costs each request that runs there, in its own time: they go on in the same steps."""
_STEP_TOKENS: Final = 64
"""Tokens for each other request. It makes a step longer, even if its prompt has been read."""
_SLOTS_ALIKE: Final = 0.25
"""Means of a few answers, whose lengths differ, differ by so much without a reason."""
_ASKED_AGAIN: Final = 0.25
"""The share of what an engine drops that would have been asked for again: it drops what was used least recently."""
_NEAR: Final = 1.05
_NEAR_S: Final = 0.001
"""Costs that differ by less are equal: what was learned is not more exact."""
_MOST_KEPT: Final = 65_536
"""In all rows that are kept: about 20 MB."""
_NOTHING: Final[Mapping[str, int]] = {}


class CostParts(NamedTuple):
    """The expected seconds to the first token, in parts.

    ``wait``: for a slot, a load, or the prompts of others. ``own``: for the prompt. ``harm``: what it costs the others,
    who run there or have something cached that is dropped for it.
    ``writing``: how much later than by the fastest engine the answer is written, if its client waits for all of it.
    """

    wait: float
    own: float
    harm: float
    writing: float = 0.0


def _pace(engine: EngineState | None) -> tuple[float, float]:
    """The least and the most that the engine probably takes for a token that it writes."""
    if engine is None or not engine.per_written:
        return 0.0, inf
    return engine.lowest_written, engine.highest_written


class EngineCosts:
    """Finds the cheapest candidate, by what is ``known`` of engines.

    ``waiting``: the requests that wait for a slot of any engine, by model.
    ``crowded``: the tokens that are left until an engine drops something that it has cached, by replica.
    """

    def __init__(self, known: KnownEngines, priority_s: float, crowded: Mapping[str, int] = _NOTHING) -> None:
        self._known = known
        self._usual = known.all
        self._priority_s = priority_s
        self._crowded = crowded
        self._rows: dict[str, CostRow] = {}
        self._generation = self._kept = 0
        self._last: CostRow | None = None
        self.waiting: Mapping[str, int] = {}

    @property
    def were_plain(self) -> bool:
        """Whether all candidates of the last pick were ready, and none an adapter."""
        return self._last is not None and self._last.plain

    def pick(
        self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float, stream: bool = True
    ) -> Candidate:
        """The cheapest candidate; of those that are about equal, the one that was used least recently.

        ``cached``: the tokens of the prompt that engines have, by replica; ``tokens``: of the whole prompt. Without a
        ``stream``, the client waits until the answer is written.
        """
        known = self._known
        known.pass_time(known.now())
        if self._generation != known.generation:
            self._generation, self._kept, self._last = known.generation, 0, None
            self._rows.clear()
        row = self._last
        if row is None or row.candidates is not candidates:
            self._last = row = self._row(candidates)
        if len(candidates) <= FEW:
            costs = self._computed_anew(row, cached, tokens, stream)
        else:
            costs = self._computed(row, cached, tokens, stream)
        lowest = inf
        for cost in costs:  # compiled, this takes less time than ``min``
            if cost < lowest:
                lowest = cost
        limit = lowest * _NEAR + _NEAR_S
        chosen, least = candidates[0], -1
        for place, cost in enumerate(costs):
            if cost <= limit:
                engine = row.engines[place] or self._engine(row, place)
                used = engine.used if engine is not None else 0
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
        self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float, stream: bool = True
    ) -> list[tuple[float, CostParts]]:
        """What each candidate costs in all, with what a worse priority adds, and in parts."""
        row = CostRow(candidates, self._priority_s)
        costs = self._computed(row, cached, tokens, stream)
        late = lags(row.paces, row.trusts) if not stream else []
        lost = self._evictions(row, cached, tokens)
        found: list[tuple[float, CostParts]] = []
        for place, each in enumerate(candidates):
            parts = self._parts(row, place, min(tokens, cached.get(each.replica, 0)), tokens)
            if late:
                parts = parts._replace(writing=self._usual.answer * late[place])
            if lost:
                parts = parts._replace(harm=parts.harm + lost[place])
            found.append((costs[place], parts))
        return found

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

    def _computed(self, row: CostRow, cached: Mapping[str, int], tokens: float, stream: bool) -> list[float]:
        """The costs of a row, once what may have changed there is computed again."""
        known = self._known
        since = row.seen - known.forgotten
        places = row.stale(known.changes[since:]) if since >= 0 else range(len(row.candidates))
        row.seen = known.forgotten + len(known.changes)
        for place in places:
            self._renew(row, place)
        row.settle(places)
        late = lags(row.paces, row.trusts) if not stream else []
        costs = row.compute(cached, tokens, self._crowd(row))
        return self._completed(row, costs, late, self._evictions(row, cached, tokens))

    def _computed_anew(self, row: CostRow, cached: Mapping[str, int], tokens: float, stream: bool) -> list[float]:
        """What ``_computed`` returns, without the columns of the row, of which only ``fastest`` is known."""
        if row.lessons != self._usual.lessons:
            self._compare(row)
        fastest = row.fastest
        costs: list[float] = []
        trusts: list[float] = []
        limited = 0
        for load in row.loads:
            limited |= load.slots
        more = self._crowd(row) if limited else 0.0  # without slots, nobody waits for one
        for place, replica in enumerate(row.replicas):
            wait, ahead, factor, rate, trust = self._figures(row, place)
            unread = tokens
            if cached:
                there: int = cached.get(replica, 0)
                unread = tokens - there if there < tokens else 0.0
            read = ahead + OVERHEAD + work(unread, factor + more)
            costs.append(row.worse[place] + wait + rate_beside(rate, fastest, trust) * read)
            trusts.append(trust)
        late: list[float] = []
        if not stream and not row.write_alike:
            late = lags([_pace(engine) for engine in row.engines], trusts)
        lost = self._evictions(row, cached, tokens) if self._crowded else []
        if late or lost or row.adapters:
            return self._completed(row, costs, late, lost)
        row.costs = costs
        return costs

    def _compare(self, row: CostRow) -> None:
        """Find the fastest engine of a row again, and whether all write equally fast: something was learned."""
        row.lessons = self._usual.lessons
        fastest, latest, soonest = inf, 0.0, inf
        for place in range(len(row.engines)):
            engine = self._engine(row, place)
            if engine is not None:
                fastest = min(fastest, engine.highest or inf)
                least, most = _pace(engine)
                latest, soonest = max(latest, least), min(soonest, most)
        row.fastest = fastest if fastest < inf else 0.0
        row.write_alike = latest < ALIKE * soonest

    def _evictions(self, row: CostRow, cached: Mapping[str, int], tokens: float) -> list[float]:
        """The seconds to read again what is dropped for this prompt; empty if no engine has to drop any, or all do."""
        crowded = self._crowded
        if not crowded:
            return []
        lost = [
            max(0.0, tokens - cached.get(replica, 0) - crowded[replica]) if replica in crowded else 0.0
            for replica in row.replicas
        ]
        if not any(lost) or all(lost):
            return []
        rate = _ASKED_AGAIN * (self._usual.per_token or FIRST_RATE)
        return [rate * each for each in lost]

    def _completed(self, row: CostRow, costs: list[float], late: list[float], lost: list[float]) -> list[float]:
        """The ``costs``, with those of adapters, of what is ``lost``, and of writing each token so much ``late``."""
        if lost:
            costs = [cost + more for cost, more in zip(costs, lost, strict=True)]
        if late:
            answer = self._usual.answer
            costs = [cost + answer * lag for cost, lag in zip(costs, late, strict=True)]
        if row.adapters:
            costs = [cost + self.adapter_s(each) for cost, each in zip(costs, row.candidates, strict=True)]
        row.costs = costs
        return costs

    def _renew(self, row: CostRow, place: int) -> None:
        """Compute the columns of a row again at ``place``. ``row.settle`` must follow."""
        wait, row.ahead[place], row.factors[place], row.rates[place], row.trusts[place] = self._figures(row, place)
        row.waits[place] = wait + row.worse[place]
        engine = row.engines[place]
        row.paces[place] = _pace(engine)
        learned = (engine.highest if engine is not None else 0) or inf
        if learned != row.learned[place]:
            row.learn(place, learned)

    def _engine(self, row: CostRow, place: int) -> EngineState | None:
        """What is known of the engine at ``place``; ``None`` before anything is."""
        known = row.engines[place]
        if known is None:
            row.engines[place] = known = self._known.engines.get(row.candidates[place].backend)
        return known

    def _figures(self, row: CostRow, place: int) -> tuple[float, float, float, float, float]:
        """The seconds to wait, the tokens ahead, the factor, the rate and its trust, as the columns of a row."""
        load = row.loads[place]
        pending: int = load.pending
        slots: int = load.slots
        rate, ahead, trust = 0.0, 0.0, 1.0
        engine = row.engines[place] or self._engine(row, place)
        if engine is not None:
            rate, ahead = engine.lowest, engine.backlog
            if self._known.turn - engine.used > len(self._known.engines):
                trust = self._known.trust(engine)
        wait = 0.0
        beside = pending
        if slots and pending >= slots:
            wait = (pending - slots + 1) * self._in_slot(engine) / slots
            beside, ahead = slots, 0.0
        if row.cold[place]:
            wait += self.load_s(row.candidates[place])
        running = float(beside) if beside <= 4 else 2 * sqrt(beside)
        return wait, ahead + _STEP_TOKENS * pending, 1 + _DELAY * running, rate, trust

    def _in_slot(self, engine: EngineState | None) -> float:
        """The seconds for which a request probably holds its slot."""
        usual = self._usual.in_slot
        own = engine.in_slot if engine is not None else 0.0
        return own if own and abs(own - usual) > _SLOTS_ALIKE * usual else usual

    def adapter_s(self, candidate: Candidate) -> float:
        """Seconds until the engine of ``candidate`` has loaded its adapter; 0 if it has, or if it is no adapter."""
        if candidate.capabilities.parent is None:
            return 0.0
        engine = self._known.engines.get(candidate.backend) or EngineState(candidate.backend, None, [])
        return engine.adapter_s(candidate, self._usual.in_slot)

    def load_s(self, candidate: Candidate) -> float:
        """Seconds until ``candidate``, which is not ready, can serve: its load, after those that its host has begun."""
        wake_s: float = candidate.wake_s
        others = self._known.loading.get(candidate.host)
        if others is None or candidate.replica in others:
            return wake_s
        return wake_s + sum(others.values())
