"""The strategies ``least_pending`` and ``p2c``: the candidate with the fewest requests, of all or of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from enginehouse import Candidate, Requirements, Strategy
from enginehouse.routing_facts import Verdict
from enginehouse_routing.draws import Draws
from enginehouse_routing.parameters import RandomConfig


class LeastPending(Strategy):
    """Picks a ready candidate with the fewest pending requests for its weight; of several, a random one.

    Several gateways in front of the same engines so do not all pick the same one.
    """

    Config: ClassVar[type[RandomConfig]] = RandomConfig
    binds_late = True

    def __init__(self, config: RandomConfig) -> None:
        self._draws = Draws(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return fewest_pending(candidates, self._draws.first)

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        self._draws.renew()

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _verdicts(candidates)


class PowerOfTwo(Strategy):
    """Draws two candidates and picks the one with fewer pending requests for its weight, a ready one first."""

    Config: ClassVar[type[RandomConfig]] = RandomConfig

    def __init__(self, config: RandomConfig) -> None:
        self._draws = Draws(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) < 2:
            return candidates[0]
        first = int(self._draws.second * len(candidates))
        second = int(self._draws.third * (len(candidates) - 1))
        two = [candidates[first], candidates[second + (second >= first)]]
        return fewest_pending(two, self._draws.first)

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        self._draws.renew()

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _verdicts(candidates)


def fewest_pending(candidates: Sequence[Candidate], drawn: float) -> Candidate:
    """The candidate that is ready soonest, of these the one with the fewest pending requests, of these any.

    ``drawn``: a random number from 0 to 1, without 1. A candidate with a weight of 2 may have twice as many.
    """
    loads = [(each.wake_s, each.load.pending / each.weight) for each in candidates]
    least = min(loads)
    equal = [each for each, load in zip(candidates, loads, strict=True) if load == least]
    return equal[int(drawn * len(equal))]


def _verdicts(candidates: Sequence[Candidate]) -> Sequence[Verdict]:
    return [Verdict(-each.load.pending, {"pending": each.load.pending, "wake_s": each.wake_s}) for each in candidates]
