"""The choice of the strategy ``smart``. Compiled code cannot be copied, as strategies are, so it stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Candidate


def best_of(candidates: Sequence[Candidate], by_priority: int, by_load: int, by_latency: int, weight: int) -> Candidate:
    """The candidate with the highest score, the first of equals. It runs for every request."""
    best = candidates[0]
    highest = -1
    for candidate in candidates:
        score = score_of(candidate, by_priority, by_load, by_latency, weight)
        if score > highest:
            best, highest = candidate, score
    return best


def score_of(candidate: Candidate, by_priority: int, by_load: int, by_latency: int, weight: int) -> int:
    """The weighted mean of the figures of the scorers priority, load and latency, rounded down."""
    load, priority = candidate.load, candidate.priority
    pending: int = load.pending
    ms: float = load.avg_latency_ms + 1e3 * candidate.wake_s
    total = by_priority * (100 - priority) if priority < 100 else 0
    if pending < 100:
        total += by_load * (100 - pending)
    if ms < 1000:
        total += by_latency * (100 - int(ms) // 10)
    return total // weight
