"""Scorers: how good each candidate is, from 0 to 100, in integers."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Candidate, Requirements, Scorer


class PriorityScorer(Scorer):
    """100 for priority 0, one less for each step down."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """``100 - min(priority, 100)`` for each."""
        return [100 - priority if (priority := candidate.priority) < 100 else 0 for candidate in candidates]


class LoadScorer(Scorer):
    """100 for an idle backend, one less for each pending request."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """``100 - min(pending, 100)`` for each."""
        return [100 - pending if (pending := candidate.load.pending) < 100 else 0 for candidate in candidates]


class LatencyScorer(Scorer):
    """100 for an answer that begins at once, one less for each 10 ms on average; waking a cold replica takes its time.

    A backend that has not answered yet counts as 0 ms.
    """

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """``100 - min(milliseconds / 10, 100)`` for each."""
        expected_ms = [
            candidate.load.avg_latency_ms + 1000 * wake_s
            if (wake_s := candidate.wake_s)
            else candidate.load.avg_latency_ms
            for candidate in candidates
        ]
        return [100 - int(ms) // 10 if ms < 1000 else 0 for ms in expected_ms]
