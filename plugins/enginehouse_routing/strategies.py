"""Strategies: pick the candidate that serves a request. ``cache_aware`` has a file of its own."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from math import ceil, inf, log
from operator import attrgetter, mul
from typing import Annotated, ClassVar

import msgspec

from enginehouse import Candidate, Requirements, Strategy
from enginehouse.routing_facts import Verdict, WeightedScorer
from enginehouse_routing.choices import best_of, first_of, forget_oldest, longest_ago, scores_of


class Weighted(Strategy):
    """Picks the candidate with the highest weighted mean of the scorers' figures, rounded down.

    The first of equal candidates wins, until it is 16 requests ahead of another. The scorers are those of
    ``routing.scorers``.
    """

    def __init__(self) -> None:
        self._scorers: Sequence[WeightedScorer] = ()
        self._weights: Sequence[int] = ()
        self._weight = 0
        self._turns: dict[str, int] = {}
        self._picked = ("", 0)
        """The last pick: its replica, with the turns that this has had."""

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Receive the scorers. Without any, all candidates are equal."""
        self._scorers = [scorer for scorer in scorers if scorer.weight]
        self._weights = [scorer.weight for scorer in self._scorers]
        self._weight = sum(self._weights)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) == 1 or not self._scorers:
            return candidates[0]
        chosen, turns = first_of(candidates, self._totals(self._figures(requirements, candidates)), self._turns)
        self._picked = chosen.replica, turns
        return chosen

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        had = self._turns.pop(chosen.replica, 0)
        replica, turns = self._picked
        self._turns[chosen.replica] = 1 + (turns if replica == chosen.replica else had)
        forget_oldest(self._turns)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return each candidate's score and its figures by scorer."""
        if not self._scorers:
            return super().explain(requirements, candidates)
        figures = self._figures(requirements, candidates)
        names = [scorer.name for scorer in self._scorers]
        return [
            Verdict(total, dict(zip(names, parts, strict=True)))
            for total, *parts in zip(self._totals(figures), *figures, strict=True)
        ]

    def _figures(self, requirements: Requirements, candidates: Sequence[Candidate]) -> list[Sequence[float]]:
        """The figures of all candidates, by scorer."""
        return [scorer.score(requirements, candidates) for _, _, scorer in self._scorers]

    def _totals(self, figures: Sequence[Sequence[float]]) -> list[float]:
        """The score of each candidate."""
        weights, weight = self._weights, self._weight
        if len(weights) == 3:  # as in smart; three times faster than the general case
            u, v, w = weights
            return [(u * x + v * y + w * z) // weight for x, y, z in zip(*figures)]  # noqa: B905 - equally long
        return [sum(map(mul, weights, parts)) // weight for parts in zip(*figures, strict=True)]


class Smart(Weighted):
    """Picks as ``weighted`` does with the scorers priority, load and latency."""

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Receive the three scorers. The gateway makes them from ``routing.weights``."""
        super().use(scorers)
        weights = {scorer.name: scorer.weight for scorer in scorers}
        self._three = (weights.get("priority", 0), weights.get("load", 0), weights.get("latency", 0))

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) == 1 or not self._scorers:
            return candidates[0]
        by_priority, by_load, by_latency = self._three
        chosen, turns = best_of(candidates, by_priority, by_load, by_latency, self._weight, self._turns)
        self._picked = chosen.replica, turns
        return chosen

    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> float | None:
        """Return the score of ``chosen`` alone: it does not depend on the other candidates."""
        if not self._scorers:
            return None
        by_priority, by_load, by_latency = self._three
        return scores_of([chosen], by_priority, by_load, by_latency, self._weight)[0]


class RoundRobin(Strategy):
    """Picks the replica that was picked longest ago; replicas never picked come first, in order.

    The rotation stays even when the candidates differ from request to request. Where weights differ, each replica has
    its share of the turns in every short while.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._last_turns: dict[str, int] = {}
        self._credits: dict[str, float] = {}
        self._picked: tuple[str, Mapping[str, float]] = ("", {})
        """The last pick by weight, with the credits that follow if it is carried out."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return longest_ago(candidates, self._last_turns) or self._by_weight(candidates)

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        self._turn += 1
        self._last_turns.pop(chosen.replica, None)
        self._last_turns[chosen.replica] = self._turn
        forget_oldest(self._last_turns)
        picked, credits = self._picked
        if picked == chosen.replica:
            for replica, credit in credits.items():
                self._credits.pop(replica, None)
                self._credits[replica] = credit
            forget_oldest(self._credits)

    def _by_weight(self, candidates: Sequence[Candidate]) -> Candidate:
        """The replica that is most behind its share."""
        credits = {each.replica: self._credits.get(each.replica, 0.0) + each.weight for each in candidates}
        chosen = max(candidates, key=lambda each: credits[each.replica])
        credits[chosen.replica] -= sum([each.weight for each in candidates])
        self._picked = chosen.replica, credits
        return chosen

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return the turn in which each candidate was last picked; 0 for never."""
        return [Verdict(parts={"last_turn": self._last_turns.get(each.replica, 0)}) for each in candidates]


class PriorityOnly(Strategy):
    """Picks the candidate with the lowest priority number, the first of equals."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=_priority)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict(parts={"priority": candidate.priority}) for candidate in candidates]


_priority = attrgetter("priority")


class RandomConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seed`` makes the picks repeatable."""

    seed: int | None = None


class Draws:
    """Three random numbers from 0 to 1, without 1, that stay until a request has been placed with them.

    ``seed`` makes all repeatable.
    """

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)
        self.renew()

    def renew(self) -> None:
        """Draw the next numbers."""
        draw = self._random.random
        self.first, self.second, self.third = draw(), draw(), draw()


class _Drawing(Strategy):
    """Picks by random numbers."""

    Config: ClassVar[type[RandomConfig]] = RandomConfig

    def __init__(self, config: RandomConfig) -> None:
        self._draws = Draws(config.seed)

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        self._draws.renew()


class Random(_Drawing):
    """Picks each candidate with the same probability, or in proportion to its weight."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        drawn = self._draws.first
        if not _differ(candidates):
            return candidates[int(drawn * len(candidates))]
        shares = list(accumulate(each.weight for each in candidates))
        return candidates[bisect(shares, drawn * shares[-1], hi=len(shares) - 1)]


def _differ(candidates: Sequence[Candidate]) -> bool:
    """Whether the candidates have different weights."""
    first = candidates[0].weight
    return any(each.weight != first for each in candidates)


class LeastPending(_Drawing):
    """Picks a ready candidate with the fewest pending requests for its weight; of several, a random one.

    Several gateways in front of the same engines so do not all pick the same one.
    """

    binds_late = True

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return fewest_pending(candidates, self._draws.first)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _pending(candidates)


class PowerOfTwo(_Drawing):
    """Draws two candidates and picks the one with fewer pending requests for its weight, a ready one first."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if len(candidates) < 2:
            return candidates[0]
        first = int(self._draws.second * len(candidates))
        second = int(self._draws.third * (len(candidates) - 1))
        two = [candidates[first], candidates[second + (second >= first)]]
        return fewest_pending(two, self._draws.first)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return _pending(candidates)


def fewest_pending(candidates: Sequence[Candidate], drawn: float) -> Candidate:
    """The candidate that is ready soonest, of these the one with the fewest pending requests, of these any.

    ``drawn``: a random number from 0 to 1, without 1. A candidate with a weight of 2 may have twice as many.
    """
    loads = [(each.wake_s, each.load.pending / each.weight) for each in candidates]
    least = min(loads)
    equal = [each for each, load in zip(candidates, loads, strict=True) if load == least]
    return equal[int(drawn * len(equal))]


def _pending(candidates: Sequence[Candidate]) -> Sequence[Verdict]:
    return [Verdict(-each.load.pending, {"pending": each.load.pending, "wake_s": each.wake_s}) for each in candidates]


class SessionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``bound``: how many times its share of the pending requests an engine may have and still get more.

    ``seed``: of the choices for requests without a session; without one, they differ each time.
    """

    bound: Annotated[float, msgspec.Meta(ge=1)] = 1.25
    seed: int | None = None


class Session(Strategy):
    """Picks for each session one candidate by rendezvous hashing, or its next one while that one is above its bound.

    The session is what ``routing.session`` finds in the request. Equal sessions meet at the same candidate at every
    gateway, and a candidate that comes or goes moves only its own sessions. A request without a session goes where the
    fewest requests are.
    """

    Config: ClassVar[type[SessionConfig]] = SessionConfig
    reads_session = True

    def __init__(self, config: SessionConfig) -> None:
        self._bound = config.bound
        self._draws = Draws(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        if not requirements.session:
            return fewest_pending(candidates, self._draws.first)
        within = self._within(candidates)
        return max(within, key=lambda each: _rank(requirements.session, each))

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        if not requirements.session:
            self._draws.renew()

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return each candidate's rank for the session, and whether it is within its bound."""
        within = {each.replica for each in self._within(candidates)}
        return [
            Verdict(
                _rank(requirements.session, each),
                {"pending": each.load.pending, "within_bound": float(each.replica in within)},
            )
            for each in candidates
        ]

    def _within(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates that may get more; there is at least one."""
        share = self._bound * (sum([each.load.pending for each in candidates]) + 1)
        share /= sum([each.weight for each in candidates])
        return [each for each in candidates if each.load.pending < ceil(share * each.weight)]


def _rank(session: str, candidate: Candidate) -> float:
    """A number that is the same at every gateway.

    It is the highest of all for a share of the sessions in proportion to the candidate's weight: Schindelhauer,
    Schomaker, "Weighted distributed hash tables" (2005).
    """
    text = f"{session}\0{candidate.replica}".encode(errors="replace")
    drawn = (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") + 1) / 2**64
    return candidate.weight / -log(drawn) if drawn < 1 else inf
