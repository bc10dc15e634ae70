"""What each engine is expected to cost a request, learned from answers. Compiled: it runs for every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import Final, NamedTuple

from enginehouse import Candidate

_KEPT: Final = 0.97
"""The weight that older answers keep when a new one comes."""
_FIRST_RATE: Final = 1e-4
"""Seconds for a token, before any engine has answered."""
_OVERHEAD_TOKENS: Final = 256
"""What a prompt costs besides its tokens: an engine cannot answer in less than a step."""
_QUEUE_S: Final = 0.002
"""Seconds for each other request. They make a step longer, even if their prompts have been read."""
_ADAPTER_S: Final = 0.1
"""Seconds to load a LoRA adapter. vLLM reads one of rank 16 for 8 billion parameters, 80 MB, from memory or a disk."""
_MOST_ADAPTERS: Final = 256
"""Adapters that are remembered of an engine."""
_MISSED_TURNS: Final = 3
"""After so many turns that an engine missed, 63 % of what it was slower is forgotten: it may have been so only once."""
_ALIKE: Final = 1.25
"""Engines whose rates differ by less are equally fast: what each has learned depends on how busy it was."""
_NEAR: Final = 1.05
_NEAR_S: Final = 0.001
"""Costs that differ by less are equal: what was learned is not more exact."""


class LearnedRate:
    """Means over the last answers; 0 before the first.

    ``per_token``: seconds for a token of a prompt. ``in_slot``: seconds from grant to end.
    """

    __slots__ = ("_requests", "_seconds", "_slot_seconds", "_tokens", "in_slot", "per_token")

    def __init__(self) -> None:
        self.per_token = self.in_slot = 0.0
        self._seconds = self._tokens = 0.0
        self._slot_seconds = self._requests = 0.0

    def answered(self, seconds: float, tokens: float) -> None:
        """Add a first token that came ``seconds`` after the request was sent, with so many ``tokens`` to read."""
        self._seconds = _KEPT * self._seconds + seconds
        self._tokens = _KEPT * self._tokens + tokens
        self.per_token = self._seconds / self._tokens

    def fade(self, share: float) -> None:
        """Keep ``share`` of the weight of the answers so far, so that the next one decides the more."""
        self._seconds *= share
        self._tokens *= share

    @property
    def sums(self) -> tuple[float, float, float, float]:
        """What the means are made of: weighted seconds and tokens, seconds in slots and requests."""
        return self._seconds, self._tokens, self._slot_seconds, self._requests

    def recall(self, sums: tuple[float, float, float, float]) -> None:
        """Go on from the ``sums`` of another one."""
        self._seconds, self._tokens, self._slot_seconds, self._requests = sums
        if self._tokens:
            self.per_token = self._seconds / self._tokens
        if self._requests:
            self.in_slot = self._slot_seconds / self._requests

    def ended(self, seconds: float) -> None:
        """Add a request that held its slot for so many ``seconds``."""
        self._slot_seconds = _KEPT * self._slot_seconds + seconds
        self._requests = _KEPT * self._requests + 1
        self.in_slot = self._slot_seconds / self._requests


class EngineState:
    """What is known of one engine. ``backlog``: tokens of prompts that are there and have no answer yet.

    ``adapters``: the LoRA adapters that it was asked for, least recently asked for first, with their live requests.
    """

    __slots__ = ("adapters", "backlog", "learned", "used")

    def __init__(self) -> None:
        self.adapters: dict[str, int] = {}
        self.learned = LearnedRate()
        self.backlog = 0.0
        self.used = 0
        """The turn in which it was picked last; 0 for never."""

    def begin_adapter(self, name: str) -> None:
        """Count a request for an adapter."""
        known = self.adapters
        known[name] = known.pop(name, 0) + 1
        if len(known) > _MOST_ADAPTERS:
            for idle in [each for each, live in known.items() if not live]:
                del known[idle]
                break

    def end_adapter(self, name: str) -> None:
        """Count the end of a request for an adapter."""
        if name in self.adapters:
            self.adapters[name] -= 1


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
    """

    def __init__(self, priority_s: float) -> None:
        self._priority_s = priority_s
        self._engines: dict[str, EngineState] = {}
        self._all = LearnedRate()
        self._turn = 0
        self.loading: dict[str, dict[str, float]] = {}

    def engine(self, backend: str) -> EngineState:
        """What is known of the engine of ``backend``."""
        known = self._engines.get(backend)
        if known is None:
            known = self._engines[backend] = EngineState()
        return known

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

    def used(self, backend: str) -> None:
        """Note that a request goes to ``backend``."""
        engine = self.engine(backend)
        engine.learned.fade(self._trust(engine) ** 2)  # the square: an old time may be a hundred times too long
        self._turn += 1
        engine.used = self._turn

    def fastest(self, candidates: Sequence[Candidate]) -> float:
        """The seconds for a token of the fastest engine among ``candidates``; 0 if nothing is known of any."""
        fastest = 0.0
        for each in candidates:
            engine = self._engines.get(each.backend)
            if engine is not None and (rate := engine.learned.per_token) and (rate < fastest or not fastest):
                fastest = rate
        return fastest

    def _trust(self, engine: EngineState) -> float:
        """How much what was learned of ``engine`` still counts, from 0 to 1: the less, the longer it was not used."""
        missed, round = self._turn - engine.used, len(self._engines)
        return exp(-missed / (_MISSED_TURNS * round)) if missed > round else 1.0

    def answered(self, engine: EngineState, seconds: float, tokens: float) -> None:
        """Learn from a first token that came ``seconds`` after its request was sent."""
        engine.learned.answered(seconds, tokens + _OVERHEAD_TOKENS)
        self._all.answered(seconds, tokens + _OVERHEAD_TOKENS)

    def ended(self, engine: EngineState, seconds: float) -> None:
        """Learn from a request that held its slot for so many ``seconds``."""
        engine.learned.ended(seconds)
        self._all.ended(seconds)

    def pick(self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float) -> Candidate:
        """The cheapest candidate; of those that are about equal, the one that was used least recently.

        ``cached``: the tokens of the prompt that engines have, by replica; ``tokens``: of the whole prompt.
        """
        costs = self.costs(candidates, cached, tokens)
        limit = min(costs) * _NEAR + _NEAR_S
        chosen, least = candidates[0], -1
        for place, cost in enumerate(costs):
            if cost <= limit:
                known = self._engines.get(candidates[place].backend)
                used = known.used if known is not None else 0
                if least < 0 or used < least:
                    chosen, least = candidates[place], used
        return chosen

    def costs(self, candidates: Sequence[Candidate], cached: Mapping[str, int], tokens: float) -> list[float]:
        """What each candidate costs, in seconds, with what a worse priority adds."""
        costs: list[float] = []
        first: int = candidates[0].priority
        even, fastest = True, self.fastest(candidates)
        for each in candidates:
            wait, own, harm = self._parts(each, cached.get(each.replica, 0) if cached else 0, tokens, fastest)
            costs.append(wait + own + harm)
            even = even and each.priority == first
        if candidates[0].capabilities.parent is not None:
            costs = [cost + self.adapter_s(each) for cost, each in zip(costs, candidates, strict=True)]
        return costs if even else self._with_priorities(candidates, costs)

    def parts(self, candidate: Candidate, cached: int, tokens: float, fastest: float) -> CostParts:
        """What ``candidate`` costs, of whose prompt of so many ``tokens`` a part is ``cached`` there.

        ``fastest``: that of all candidates.
        """
        wait, own, harm = self._parts(candidate, cached, tokens, fastest)
        return CostParts(wait + self.adapter_s(candidate), own, harm)

    def _parts(self, candidate: Candidate, cached: int, tokens: float, fastest: float) -> tuple[float, float, float]:
        load = candidate.load
        pending: int = load.pending
        slots: int = load.slots
        rate, in_slot, backlog = self._all.per_token, self._all.in_slot, 0.0
        engine = self._engines.get(candidate.backend)
        if engine is not None:
            learned, backlog = engine.learned, engine.backlog
            rate, in_slot = learned.per_token or rate, learned.in_slot or in_slot
            if rate > fastest > 0:
                rate = fastest if rate < _ALIKE * fastest else fastest + (rate - fastest) * self._trust(engine)
        if not rate:
            rate = _FIRST_RATE
        missing = tokens - cached if tokens > cached else 0.0
        own = rate * (missing + _OVERHEAD_TOKENS)
        wait = _QUEUE_S * pending
        beside = pending
        if slots and pending >= slots:
            wait += (pending - slots + 1) * in_slot / slots
            beside = slots
        elif backlog:
            wait += rate * backlog
        if candidate.wake_s:
            wait += self.load_s(candidate)
        return wait, own, own * (beside if beside <= 4 else 2 * sqrt(beside))

    def _with_priorities(self, candidates: Sequence[Candidate], costs: list[float]) -> list[float]:
        priorities = [each.priority for each in candidates]
        ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities)))}
        return [cost + self._priority_s * ranks[each] for cost, each in zip(costs, priorities, strict=True)]

    def adapter_s(self, candidate: Candidate) -> float:
        """Seconds until the engine of ``candidate`` has loaded its adapter; 0 if it has, or if it is no adapter.

        An engine has the adapters that it was asked for last, as many as it runs at once. If all of these are in use,
        the next one waits until a request ends.
        """
        if candidate.capabilities.parent is None:
            return 0.0
        name, load = candidate.name_there or candidate.model, candidate.load
        active: tuple[str, ...] = load.adapters
        most: int = load.max_adapters
        engine = self._engines.get(candidate.backend)
        known = engine.adapters if engine is not None else {}
        asked = list(known)
        if name in active or name in (asked[max(0, len(asked) - most) :] if most else asked):
            return 0.0
        busy = {each for each, live in known.items() if live}
        busy.update(active)
        if not most or len(busy) < most:
            return _ADAPTER_S
        in_slot = engine.learned.in_slot if engine is not None else 0.0
        return _ADAPTER_S + (in_slot or self._all.in_slot or _ADAPTER_S)

    def load_s(self, candidate: Candidate) -> float:
        """Seconds until ``candidate``, which is not ready, can serve: its load, after those that its host has begun."""
        wake_s: float = candidate.wake_s
        others = self.loading.get(candidate.host)
        if others is None or candidate.replica in others:
            return wake_s
        return wake_s + sum(others.values())
