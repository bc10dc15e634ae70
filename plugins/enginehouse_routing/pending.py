"""The strategies ``least_pending`` and ``p2c``: the candidate with the fewest requests, of all or of two."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from enginehouse import Candidate, Requirements, Strategy, Verdict
from enginehouse_routing.parameters import RandomConfig


class LeastPending(Strategy):
    """Picks a ready candidate with the fewest pending requests for its weight, and of several such ones any.

    Several gateways in front of the same engines so do not all pick the same one.
    """

    Config: ClassVar[type[RandomConfig]] = RandomConfig
    binds_late = True

    def __init__(self, config: RandomConfig) -> None:
        self._random = random.Random(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return fewest_pending(candidates, self._random)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _verdicts(candidates)


class PowerOfTwo(Strategy):
    """Draws two candidates and picks the one with fewer pending requests for its weight, a ready one first."""

    Config: ClassVar[type[RandomConfig]] = RandomConfig

    def __init__(self, config: RandomConfig) -> None:
        self._random = random.Random(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) < 2:
            return candidates[0]
        return fewest_pending(self._random.sample(candidates, 2), self._random)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _verdicts(candidates)


def fewest_pending(candidates: Sequence[Candidate], chance: random.Random) -> Candidate:
    """The candidate that is ready soonest, of these the one with the fewest pending requests, of these any.

    A candidate with a weight of 2 may have twice as many.
    """
    loads = [(each.wake_s, each.load.pending / each.weight) for each in candidates]
    least = min(loads)
    equal = [each for each, load in zip(candidates, loads, strict=True) if load == least]
    return equal[int(chance.random() * len(equal))]


def _verdicts(candidates: Sequence[Candidate]) -> Sequence[Verdict]:
    return [Verdict(-each.load.pending, {"pending": each.load.pending, "wake_s": each.wake_s}) for each in candidates]
