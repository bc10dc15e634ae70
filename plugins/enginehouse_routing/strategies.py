"""Strategies: the candidate that serves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import attrgetter, mul

import msgspec

from enginehouse import (
    Candidate,
    PluginFailed,
    RequestError,
    Requirements,
    Strategy,
    Verdict,
    WeightedScorer,
)
from enginehouse_routing.scorers import LatencyScorer, LoadScorer, PriorityScorer

_WITHIN_RANGE: tuple[type, ...] = (PriorityScorer, LoadScorer, LatencyScorer)
"""Scorers whose figures need no check: they cannot but be right, and a check takes as long as they do."""


class Weighted(Strategy):
    """The highest weighted mean of the scorers' figures, rounded down; the first of those that tie.

    ``weighted`` is this with ``routing.scorers``.
    """

    def __init__(self) -> None:
        self._scorers: Sequence[WeightedScorer] = ()
        self._weights: Sequence[int] = ()
        self._weight = 0

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Take the scorers; without any, all candidates tie."""
        self._scorers = [scorer for scorer in scorers if scorer.weight]
        self._weights = [scorer.weight for scorer in self._scorers]
        self._weight = sum(self._weights)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate of the highest score."""
        if len(candidates) == 1 or not self._scorers:
            return candidates[0]
        totals = self._totals(self._figures(requirements, candidates))
        return candidates[totals.index(max(totals))]

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Each candidate's score, and the figure of each scorer."""
        if not self._scorers:
            return super().explain(requirements, candidates)
        figures = self._figures(requirements, candidates)
        names = [scorer.name for scorer in self._scorers]
        return [
            Verdict(total, dict(zip(names, parts, strict=True)))
            for total, *parts in zip(self._totals(figures), *figures, strict=True)
        ]

    def _figures(self, requirements: Requirements, candidates: Sequence[Candidate]) -> list[Sequence[float]]:
        """The figures of each scorer, from 0 to 100."""
        columns = []
        count = len(candidates)
        for name, _, scorer in self._scorers:
            try:
                column = scorer.score(requirements, candidates)
                if type(scorer) in _WITHIN_RANGE:
                    columns.append(column)
                    continue
                if len(column) != count:
                    raise ValueError(f"{len(column)} figures for {count} candidates")
            except RequestError:
                raise
            except Exception as error:
                text = f"The scorer '{name}' failed with {type(error).__name__}"
                raise PluginFailed(text, details={"kind": "scorer", "plugin": name}) from error
            if max(column) > 100 or min(column) < 0:
                column = [min(max(figure, 0), 100) for figure in column]
            columns.append(column)
        return columns

    def _totals(self, figures: Sequence[Sequence[float]]) -> list[float]:
        """The score of each candidate, from the figures of each scorer."""
        weights, weight = self._weights, self._weight
        if len(weights) == 3:  # as smart has them; three times as fast
            u, v, w = weights
            return [(u * x + v * y + w * z) // weight for x, y, z in zip(*figures)]  # noqa: B905 - checked before
        return [sum(map(mul, weights, parts)) // weight for parts in zip(*figures, strict=True)]


class Smart(Weighted):
    """``Weighted`` with the scorers priority, load and latency, in one pass: the default runs for every request."""

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Take those three; the gateway makes them of ``routing.weights``."""
        super().use(scorers)
        weights = {scorer.name: scorer.weight for scorer in scorers}
        self._three = (weights.get("priority", 0), weights.get("load", 0), weights.get("latency", 0))

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate of the highest score."""
        if len(candidates) == 1 or not self._scorers:
            return candidates[0]
        by_priority, by_load, by_latency = self._three
        weight = self._weight
        totals = [
            (
                by_priority * (100 - priority if (priority := candidate.priority) < 100 else 0)
                + by_load * (100 - pending if (pending := (load := candidate.load).pending) < 100 else 0)
                + by_latency
                * (100 - int(ms) // 10 if (ms := load.avg_latency_ms + 1e3 * candidate.wake_s) < 1000 else 0)
            )
            // weight
            for candidate in candidates
        ]
        return candidates[totals.index(max(totals))]


class RoundRobin(Strategy):
    """One after the other: the replica whose last turn is longest ago, the first of those that never had one.

    That is a rotation in order, which also stays even when the candidates change or differ from request to request.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._last_turns: dict[str, int] = {}

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate whose turn it is."""
        turns = self._turns(candidates)
        chosen = candidates[turns.index(min(turns))]
        self._turn += 1
        self._last_turns[chosen.replica] = self._turn
        return chosen

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """When each candidate had its last turn; 0 is never."""
        return [Verdict(parts={"last_turn": turn}) for turn in self._turns(candidates)]

    def _turns(self, candidates: Sequence[Candidate]) -> list[int]:
        last_turns = self._last_turns
        return [last_turns.get(candidate.replica, 0) for candidate in candidates]


class PriorityOnly(Strategy):
    """The lowest priority number, the first of those that tie."""

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate of the lowest priority number."""
        return min(candidates, key=_priority)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Each candidate's priority."""
        return [Verdict(parts={"priority": candidate.priority}) for candidate in candidates]


_priority = attrgetter("priority")


class Random(Strategy):
    """Any of the candidates, each as likely as the others."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """``seed``: makes the choices repeatable."""

        seed: int | None = None

    def __init__(self, config: Config) -> None:
        self._random = random.Random(config.seed)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """One of the candidates."""
        return candidates[int(self._random.random() * len(candidates))]
