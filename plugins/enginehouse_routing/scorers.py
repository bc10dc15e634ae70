"""Scorers: rate each candidate with an integer from 0 (worst) to 100 (best)."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Candidate, Requirements, Scorer


class PriorityScorer(Scorer):
    """100 for priority 0, one less for each higher number, at least 0."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100 - priority if (priority := candidate.priority) < 100 else 0 for candidate in candidates]


class LoadScorer(Scorer):
    """100 for an idle backend, one less for each pending request, at least 0."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [100 - pending if (pending := candidate.load.pending) < 100 else 0 for candidate in candidates]


class LatencyScorer(Scorer):
    """100 for an immediate answer, one less for each 10 ms of latency, at least 0.

    Latency is the average time to the first byte, plus ``wake_s`` for a replica that must be woken. A backend that has
    not answered yet has a latency of 0 ms.
    """

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        expected_ms = [
            candidate.load.avg_latency_ms + 1000 * wake_s
            if (wake_s := candidate.wake_s)
            else candidate.load.avg_latency_ms
            for candidate in candidates
        ]
        return [100 - int(ms) // 10 if ms < 1000 else 0 for ms in expected_ms]
