"""What the candidates of a model cost, kept from decision to decision. Compiled: it runs for every request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import compress, repeat
from math import inf
from operator import is_, ne
from typing import Final

from enginehouse import Candidate, ReplicaState
from enginehouse_routing.known_engines import FIRST_RATE, OVERHEAD, EngineState

FEW: Final = 8
"""For so many candidates, computing all again is faster than finding out what has changed."""
ALIKE: Final = 1.25
"""Engines whose rates differ by less are equally fast: what each has learned depends on how busy it was."""
_IN_TURN: Final = 2
"""Places that each decision computes again in rotation: what was learned long ago counts less with each turn."""
_MOST_CROWD: Final = 8.0
"""With more, slots would stay free for those whose prompts an engine has."""
_DELAYING: Final = 4096
"""Tokens of a prompt that delay others. While more are read, those that come go to other engines."""
_MOST_PREFIXES: Final = 8
"""Beginnings of prompts of which a row remembers what its candidates have."""


def work(tokens: float, factor: float) -> float:
    """The tokens as which those of a prompt count, with what they delay others."""
    return factor * tokens if tokens <= _DELAYING else factor * _DELAYING + (tokens - _DELAYING)


def crowd(waiting: int, engines: int) -> float:
    """How much more tokens count while so many requests wait for the slots of ``engines``: reading delays them all."""
    return min(_MOST_CROWD, waiting / engines)


def rate_beside(rate: float, fastest: float, trust: float) -> float:
    """Seconds for a token that count beside those of the ``fastest`` engine, 0 if none is known; nor of ``rate``."""
    if fastest <= 0:
        return rate or FIRST_RATE
    return fastest if rate < ALIKE * fastest else fastest + (rate - fastest) * trust


def lags(paces: Sequence[tuple[float, float]], trusts: Sequence[float]) -> list[float]:
    """The seconds for which engines write a token later than the fastest one; empty if all are equally fast.

    ``paces``: the least and the most that a token probably takes each; 0 and infinite if nothing is known.
    """
    fastest = min([most for _, most in paces])
    if max([least for least, _ in paces]) < ALIKE * fastest:
        return []
    return [rate_beside(least, fastest, trust) - fastest for (least, _), trust in zip(paces, trusts)]  # noqa: B905


class CostRow:
    """What some candidates cost, a column for each part, in the order of the candidates.

    The cost is ``waits + beside * (ahead + OVERHEAD + work(tokens, factors + crowd))``, for the ``tokens`` that a
    candidate must read.

    ``waits``: seconds, with those that a worse priority costs: ``worse``, ``priority_s`` for each step.
    ``ahead``: the tokens that the candidate reads first.
    ``factors``: 1, and more if others are delayed.
    ``rates``: seconds for a token, of other engines until the own ones are ``learned``; infinite there until then.
    ``paces``: as ``lags`` takes them.
    ``trusts``: how much the rate still counts, from 0 to 1.
    ``beside``: what ``rate_beside`` makes of the rates and of the ``fastest`` one.
    ``bases``: the seconds without the own prompt. ``slopes``: those for each of its tokens that delays others.
    ``engines``: what is known of each engine. ``loads`` and ``replicas``: of the candidates, whose fields compiled code
    reads slowly. ``cold``: whether each has to be loaded or woken. ``adapters``: whether they are LoRA adapters.
    ``plain``: whether they are neither, and ready.
    ``seen``: how many changes of engines the row knows. ``lessons``: of those, how many times one was learned from.
    ``write_alike``: whether all were equally fast in writing then.
    ``costs``: what the last decision found.
    """

    __slots__ = (
        *("_cold", "_least", "_next", "_pendings", "_places", "_prefixes", "adapters", "ahead", "bases", "beside"),
        *("candidates", "cold", "costs", "engines", "factors", "fastest", "learned", "lessons", "loads", "places"),
        *("paces", "plain", "rates", "replicas", "seen", "slopes", "trusts", "waits", "worse", "write_alike"),
    )

    def __init__(self, candidates: Sequence[Candidate], priority_s: float) -> None:
        number = len(candidates)
        self.candidates = candidates
        self.places = {each.backend: place for place, each in enumerate(candidates)}
        priorities = sorted({each.priority for each in candidates})
        self.worse = [priority_s * priorities.index(each.priority) for each in candidates]
        self.seen = self.lessons = -1
        self.write_alike = True
        self.fastest = 0.0
        self.costs: list[float] = []
        self.cold = [each.wake_s > 0 for each in candidates]
        self._cold = list(compress(range(number), self.cold))
        self.adapters = candidates[0].capabilities.parent is not None
        ready = all(each.state is ReplicaState.READY for each in candidates)
        self.plain = ready and not self._cold and not self.adapters
        self.engines: list[EngineState | None] = [None] * number
        self.loads = [each.load for each in candidates]
        self.replicas = [each.replica for each in candidates]
        self._places = {replica: place for place, replica in enumerate(self.replicas)}
        self._prefixes: dict[int, tuple[Mapping[str, int], int, list[tuple[int, int]]]] = {}
        self._pendings: list[int] = []
        self._next = 0
        self.waits, self.ahead, self.factors, self.rates = ([0.0] * number for _ in range(4))
        self.beside, self.bases, self.slopes = ([0.0] * number for _ in range(3))
        self.learned, self.trusts = [inf] * number, [1.0] * number
        self.paces = [(0.0, inf)] * number
        self._least = inf

    def is_of(self, candidates: Sequence[Candidate]) -> bool:
        """Whether it is of ``candidates``."""
        own = self.candidates
        return own is candidates or (len(own) == len(candidates) and all(map(is_, own, candidates)))

    def stale(self, changed: Sequence[str]) -> Collection[int]:
        """The places whose costs may have changed: those of ``changed`` backends, and some in rotation."""
        number = len(self.rates)
        found = set(self._cold)
        places, known, loads = self.places, self._pendings, self.loads
        found.update([places[backend] for backend in changed if backend in places])
        if known:
            for place in found:
                known[place] = loads[place].pending
        pendings: list[int] = [load.pending for load in loads]
        if pendings != known:  # requests came or went of which the strategy was not told
            found.update(compress(range(number), map(ne, pendings, known)))
            self._pendings = pendings
        end = min(number, self._next + _IN_TURN)
        found.update(range(self._next, end))
        self._next = end if end < number else 0
        return found

    def learn(self, place: int, rate: float) -> None:
        """Take the ``rate`` that the engine at ``place`` has learned; infinite if it has none."""
        before, self.learned[place] = self.learned[place], rate
        if rate < self._least:
            self._least = rate
        elif rate > before == self._least:
            self._least = min(self.learned)

    def settle(self, places: Collection[int]) -> None:
        """Find ``fastest`` and what follows from it again after other columns have changed at ``places``."""
        fastest = 0.0 if self._least == inf else self._least
        rates, waits, ahead, factors, trusts = self.rates, self.waits, self.ahead, self.factors, self.trusts
        if fastest != self.fastest:
            self.fastest = fastest
            self.beside = [rate_beside(rate, fastest, trust) for rate, trust in zip(rates, trusts)]  # noqa: B905
            self.bases = [wait + rate * (tokens + OVERHEAD) for wait, rate, tokens in zip(waits, self.beside, ahead)]  # noqa: B905
            self.slopes = [rate * factor for rate, factor in zip(self.beside, factors)]  # noqa: B905
            return
        beside, bases, slopes = self.beside, self.bases, self.slopes
        for place in places:
            beside[place] = rate = rate_beside(rates[place], fastest, trusts[place])
            bases[place] = waits[place] + rate * (ahead[place] + OVERHEAD)
            slopes[place] = rate * factors[place]

    def compute(self, cached: Mapping[str, int], tokens: float, more: float) -> list[float]:
        """The costs of a prompt of so many ``tokens``, of which some are ``cached``, by replica.

        ``more``: as ``crowd`` returns it.
        """
        bases, slopes, beside = self.bases, self.slopes, self.beside
        if more:
            slopes = [slope + more * rate for slope, rate in zip(slopes, beside)]  # noqa: B905
        usual, others = self._have(cached)
        own = max(0.0, tokens - usual)
        if own <= _DELAYING:
            costs = [base + slope * own for base, slope in zip(bases, slopes)]  # noqa: B905
        else:
            rest = own - _DELAYING
            costs = [base + (slope * _DELAYING + rate * rest) for base, slope, rate in zip(bases, slopes, beside)]  # noqa: B905
        for place, there in others:
            own = max(0.0, tokens - there)
            rest = max(0.0, own - _DELAYING)
            costs[place] = bases[place] + (slopes[place] * (own - rest) + beside[place] * rest)
        return costs

    def _have(self, cached: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
        """The tokens that most candidates have, and the places of the others with their tokens.

        Many prompts begin alike, so what was found is kept. ``cached`` must never change.
        """
        if not cached:
            return 0, []
        known = self._prefixes.get(id(cached))
        if known is None:
            if len(self._prefixes) == _MOST_PREFIXES:
                self._prefixes.clear()
            known = self._prefixes[id(cached)] = (cached, *self._found(cached))
        return known[1], known[2]

    def _found(self, cached: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
        places = self._places
        if len(cached) <= len(places) // 4:
            return 0, [(places[replica], there) for replica, there in cached.items() if replica in places]
        have: list[int] = list(map(cached.get, self.replicas, repeat(0)))
        usual: int = Counter(have).most_common(1)[0][0]
        return usual, [(place, there) for place, there in enumerate(have) if there != usual]
