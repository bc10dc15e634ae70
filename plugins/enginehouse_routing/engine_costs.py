"""What each engine is expected to cost a request, learned from answers. Compiled: it runs for every request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import exp, inf, sqrt
from typing import Final, NamedTuple

from enginehouse import Candidate
from enginehouse_routing.cost_row import ALIKE, FEW, FIRST_RATE, OVERHEAD, CostRow, crowd, lags, rate_beside, work
from enginehouse_routing.learned_rate import EngineState, LearnedRates, UnreadPrompt

_DELAY: Final = 0.25
"""What a token that is read costs each request that runs there, in its own time: they go on in the same steps."""
_STEP_TOKENS: Final = 64
"""Tokens for each other request. It makes a step longer, even if its prompt has been read."""
_MISSED_TURNS: Final = 3
"""After so many turns that an engine missed, 63 % of what it was slower is forgotten: it may have been so only once."""
_SLOTS_ALIKE: Final = 0.25
"""Means of a few answers, whose lengths differ, differ by so much without a reason."""
_ASKED_AGAIN: Final = 0.25
"""The share of what an engine drops that would have been asked for again: it drops what was used least recently."""
_NEAR: Final = 1.05
_NEAR_S: Final = 0.001
"""Costs that differ by less are equal: what was learned is not more exact."""
_ANSWER_EVERY_S: Final = 0.002
"""Thousands of short answers a second tell no more than some, and to learn from one takes a tenth of its time."""
_AT_ONCE_S: Final = 0.001
"""A prompt that is probably read within this time counts as read when it is sent."""
_MOST_CHANGES: Final = 4096
_GONE_TURNS: Final = 30
"""An engine that missed so many turns is probably gone; what was learned of it would count for nothing."""
_MOST_ENGINES: Final = 4096
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
    if engine is None or not engine.learned.per_written:
        return 0.0, inf
    return engine.learned.lowest_written, engine.learned.highest_written


class EngineCosts:
    """Learns what engines cost, by backend, and finds the cheapest candidate.

    ``loading``: for each host, the replicas that requests wait for there and the seconds that their loads take.
    ``waiting``: the requests that wait for a slot of any engine, by model.
    ``crowded``: the tokens that are left until an engine drops something that it has cached, by replica.
    """

    def __init__(self, priority_s: float, crowded: Mapping[str, int] = _NOTHING) -> None:
        self._priority_s = priority_s
        self._crowded = crowded
        self._engines: OrderedDict[str, EngineState] = OrderedDict()
        """The one that was used least recently comes first."""
        self._all = LearnedRates()
        self._turn = 0
        self._changed: list[str] = []
        self._forgotten = 0
        """The changes before ``_changed``."""
        self._lessons = 0
        """How often something was learned of how fast an engine is."""
        self._rows: dict[str, CostRow] = {}
        self._kept = 0
        self._last: CostRow | None = None
        self._due: list[tuple[float, int, UnreadPrompt]] = []
        self._dues = 0
        self.now: Callable[[], float] = lambda: 0.0
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
                **self.rates(backend),
                "slot_ms": round(1e3 * known.learned.in_slot, 1),
                "backlog_tokens": round(known.backlog),
            }
            for backend, known in self._engines.items()
        }

    def rates(self, backend: str) -> dict[str, float]:
        """The milliseconds for a token that the engine reads, and for one that it writes; 0 if not known."""
        known = self._engines.get(backend)
        rates = (known.learned.per_token, known.learned.per_written) if known is not None else (0.0, 0.0)
        return {"ms_per_token": round(1e3 * rates[0], 4), "ms_per_output_token": round(1e3 * rates[1], 4)}

    def memory(self) -> dict[str, list[float]]:
        """What was learned of each engine, by backend; of all of them, by an empty name."""
        return {"": self._all.state, **{backend: known.learned.state for backend, known in self._engines.items()}}

    def recall(self, memory: Mapping[str, Sequence[float]]) -> None:
        """Go on from what another one had learned, as ``memory`` returned it."""
        for backend, each in memory.items():
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
        if self._turn - engine.used > len(self._engines):
            engine.learned.fade(self._trust(engine) ** 2)  # the square: an old time may be a hundred times too long
        self._turn += 1
        engine.used = self._turn
        self._engines.move_to_end(backend)
        self._changes(engine)
        return engine

    def _trust(self, engine: EngineState) -> float:
        """How much what was learned of ``engine`` still counts, from 0 to 1: the less, the longer it was not used."""
        missed, round = self._turn - engine.used, len(self._engines)
        return exp(-missed / (_MISSED_TURNS * round)) if missed > round else 1.0

    def begin(self, engine: EngineState, tokens: int) -> UnreadPrompt:
        """Add a prompt to the engine's backlog, until ``is_read``."""
        engine.backlog += tokens
        self._changes(engine)
        return UnreadPrompt(engine, tokens)

    def is_read(self, prompt: UnreadPrompt) -> None:
        """Take ``prompt`` from its engine's backlog."""
        if prompt.tokens:
            prompt.engine.backlog -= prompt.tokens
            prompt.tokens = 0
            self._changes(prompt.engine)

    def will_be_read(self, prompt: UnreadPrompt, ahead: float, now: float) -> None:
        """Take ``prompt`` for read when it probably is, after ``ahead`` tokens. Its answer tells only at its end."""
        if prompt.tokens:
            rate = prompt.engine.learned.per_token or self._all.per_token or FIRST_RATE
            seconds = rate * (ahead + OVERHEAD + prompt.tokens)
            if seconds < _AT_ONCE_S:
                self.is_read(prompt)
                return
            self._dues += 1
            heappush(self._due, (now + seconds, self._dues, prompt))

    def _pass_time(self) -> None:
        """Take prompts for read that probably are by now."""
        due, now = self._due, self.now()
        while due and due[0][0] <= now:
            self.is_read(heappop(due)[2])

    def read(self, engine: EngineState, seconds: float, tokens: float) -> None:
        """Learn from a first token that came ``seconds`` after its request was sent."""
        for each in self._learners(engine):
            each.read(seconds, tokens + OVERHEAD)

    def wrote(self, engine: EngineState, seconds: float, tokens: float) -> None:
        """Learn from ``tokens`` that came in so many ``seconds`` after the first one."""
        for each in self._learners(engine):
            each.wrote(seconds, tokens)

    def counts_answer(self, engine: EngineState, now: float) -> bool:
        """Whether to learn from an answer that came whole ``now``: the first one within ``_ANSWER_EVERY_S``."""
        if now - engine.answered < _ANSWER_EVERY_S:
            return False
        engine.answered = now
        return True

    def answered(self, engine: EngineState, seconds: float, read: float, written: float) -> None:
        """Learn from an answer that came whole, of ``written`` tokens after the first one."""
        for each in self._learners(engine):
            each.answered(seconds, read + OVERHEAD, written)

    def _learners(self, engine: EngineState) -> tuple[LearnedRates, LearnedRates]:
        """What learns from an answer of ``engine``: what is known of it, and of all."""
        learned = engine.learned
        if not learned.per_token:
            learned.begin_as(self._all)
        self._changes(engine)
        self._lessons += 1
        return learned, self._all

    def ended(self, engine: EngineState, seconds: float) -> None:
        """Learn from a request that held its slot for so many ``seconds``."""
        engine.learned.ended(seconds)
        self._all.ended(seconds)
        self._changes(engine)

    def pick(
        self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float, stream: bool = True
    ) -> Candidate:
        """The cheapest candidate; of those that are about equal, the one that was used least recently.

        ``cached``: the tokens of the prompt that engines have, by replica; ``tokens``: of the whole prompt. Without a
        ``stream``, the client waits until the answer is written.
        """
        if self._due:
            self._pass_time()
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
                parts = parts._replace(writing=self._all.answer * late[place])
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
        since = row.seen - self._forgotten
        places = row.stale(self._changed[since:]) if since >= 0 else range(len(row.candidates))
        row.seen = self._forgotten + len(self._changed)
        for place in places:
            self._renew(row, place)
        row.settle(places)
        late = lags(row.paces, row.trusts) if not stream else []
        costs = row.compute(cached, tokens, self._crowd(row))
        return self._completed(row, costs, late, self._evictions(row, cached, tokens))

    def _computed_anew(self, row: CostRow, cached: Mapping[str, int], tokens: float, stream: bool) -> list[float]:
        """What ``_computed`` returns, without the columns of the row, of which only ``fastest`` is known."""
        if row.lessons != self._lessons:
            self._compare(row)
        fastest = row.fastest
        costs: list[float] = []
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
        late: list[float] = []
        if not stream and not row.write_alike:
            trusts = [self._figures(row, place)[4] for place in range(len(costs))]
            late = lags([_pace(engine) for engine in row.engines], trusts)
        lost = self._evictions(row, cached, tokens) if self._crowded else []
        if late or lost or row.adapters:
            return self._completed(row, costs, late, lost)
        row.costs = costs
        return costs

    def _compare(self, row: CostRow) -> None:
        """Find the fastest engine of a row again, and whether all write equally fast: something was learned."""
        row.lessons = self._lessons
        fastest, latest, soonest = inf, 0.0, inf
        for place in range(len(row.engines)):
            engine = self._known(row, place)
            if engine is not None:
                fastest = min(fastest, engine.learned.highest or inf)
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
        rate = _ASKED_AGAIN * (self._all.per_token or FIRST_RATE)
        return [rate * each for each in lost]

    def _completed(self, row: CostRow, costs: list[float], late: list[float], lost: list[float]) -> list[float]:
        """The ``costs``, with those of adapters, of what is ``lost``, and of writing each token so much ``late``."""
        if lost:
            costs = [cost + more for cost, more in zip(costs, lost, strict=True)]
        if late:
            answer = self._all.answer
            costs = [cost + answer * lag for cost, lag in zip(costs, late, strict=True)]
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
        """Compute the columns of a row again at ``place``. ``row.settle`` must follow."""
        wait, row.ahead[place], row.factors[place], row.rates[place], row.trusts[place] = self._figures(row, place)
        row.waits[place] = wait + row.worse[place]
        engine = row.engines[place]
        row.paces[place] = _pace(engine)
        learned = (engine.learned.highest if engine is not None else 0) or inf
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
        rate, ahead, trust = 0.0, 0.0, 1.0
        engine = row.engines[place] or self._known(row, place)
        if engine is not None:
            rate, ahead = engine.learned.lowest, engine.backlog
            if self._turn - engine.used > len(self._engines):
                trust = self._trust(engine)
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
        usual = self._all.in_slot
        own = engine.learned.in_slot if engine is not None else 0.0
        return own if own and abs(own - usual) > _SLOTS_ALIKE * usual else usual

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
