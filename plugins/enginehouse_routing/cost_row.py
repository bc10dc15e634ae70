"""What the candidates of a model cost, kept from decision to decision. Compiled: it runs for every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from math import inf
from operator import is_, ne
from typing import Final, NamedTuple

from enginehouse import Candidate

_ALIKE: Final = 1.25
"""Engines whose rates differ by less are equally fast: what each has learned depends on how busy it was."""
_IN_TURN: Final = 4
"""Lines that each decision makes anew in rotation: what was learned long ago counts less with each turn."""


class CostLine(NamedTuple):
    """The cost of a candidate: ``wait + rate * (ahead + factor * tokens)``, for the ``tokens`` that it must read.

    ``wait``: in seconds. ``ahead``: the tokens that it reads first. ``factor``: 1, and more if others are delayed.
    ``rate``: seconds for a token, of other engines until ``learned``. ``trust``: how much it still counts, from 0 to 1.
    """

    wait: float
    ahead: float
    factor: float
    rate: float
    learned: bool
    trust: float

    def rate_beside(self, fastest: float) -> float:
        """Seconds for a token, if the fastest engine takes ``fastest``; 0 if that is not known."""
        own = self.rate
        if own <= fastest or fastest <= 0:
            return own
        return fastest if own < _ALIKE * fastest else fastest + (own - fastest) * self.trust


class CostRow:
    """The lines of some candidates, in their order.

    Each worse priority costs ``priority_s`` seconds more. ``seen``: how many changes of engines the lines know.
    ``fastest``: the rate of the fastest engine, 0 if none is known. ``costs``: what the last decision found.
    """

    __slots__ = (
        *("_cold", "_learned", "_lines", "_loads", "_next", "_pendings", "_rates", "_replicas", "_worse"),
        *("_waits", "_ahead", "_factors", "candidates", "costs", "fastest", "places", "seen"),
    )

    def __init__(self, candidates: Sequence[Candidate], priority_s: float) -> None:
        number = len(candidates)
        self.candidates = candidates
        self.places = {each.backend: place for place, each in enumerate(candidates)}
        priorities = sorted({each.priority for each in candidates})
        self._worse = [priority_s * priorities.index(each.priority) for each in candidates]
        self.seen = -1
        self.fastest = 0.0
        self.costs: list[float] = []
        self._cold = [place for place, each in enumerate(candidates) if each.wake_s]
        self._loads = [each.load for each in candidates]
        self._replicas = [each.replica for each in candidates]
        self._pendings: list[int] = []
        self._next = 0
        self._lines = [CostLine(0.0, 0.0, 0.0, 0.0, False, 1.0)] * number
        self._waits, self._ahead, self._factors, self._rates = ([0.0] * number for _ in range(4))
        self._learned = [inf] * number

    def is_of(self, candidates: Sequence[Candidate]) -> bool:
        """Whether it has the lines of ``candidates``."""
        own = self.candidates
        return own is candidates or (len(own) == len(candidates) and all(map(is_, own, candidates)))

    def stale(self) -> list[int]:
        """The places whose lines may have changed, but for what ``seen`` counts: some of them in rotation."""
        pendings: list[int] = [load.pending for load in self._loads]
        number, found = len(pendings), self._cold.copy()
        if pendings != self._pendings:
            found.extend(compress(range(number), map(ne, pendings, self._pendings)))
            self._pendings = pendings
        end = min(number, self._next + _IN_TURN)
        found.extend(range(self._next, end))
        self._next = end if end < number else 0
        return found

    def put(self, place: int, line: CostLine) -> None:
        """Replace a line. ``settle`` must follow."""
        self._lines[place] = line
        self._waits[place] = line.wait + self._worse[place]
        self._ahead[place], self._factors[place] = line.ahead, line.factor
        self._learned[place] = line.rate if line.learned else inf

    def settle(self, places: Sequence[int]) -> None:
        """Find the rates again after the lines at ``places`` were put."""
        fastest = min(self._learned)
        fastest = 0.0 if fastest == inf else fastest
        if fastest != self.fastest:
            self.fastest, places = fastest, range(len(self._lines))
        lines, rates = self._lines, self._rates
        for place in places:
            rates[place] = lines[place].rate_beside(fastest)

    def compute(self, cached: Mapping[str, int], tokens: float, overhead: float) -> list[float]:
        """Set ``costs``: of a prompt of so many ``tokens``, of which some are ``cached``, by replica.

        ``overhead``: the tokens as which the request counts besides.
        """
        have: Sequence[int] = [0] * len(self._waits)
        if cached:
            have = list(map(cached.get, self._replicas, repeat(0)))
            if max(have) > tokens:
                have = [min(each, int(tokens)) for each in have]
        whole = tokens + overhead
        self.costs = costs = [
            wait + rate * (ahead + factor * (whole - there))
            for wait, rate, ahead, factor, there in zip(
                self._waits, self._rates, self._ahead, self._factors, have, strict=True
            )
        ]
        return costs
