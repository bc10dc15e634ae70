"""The choices of strategies. Compiled code cannot be copied, as strategies are, so they stand alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse import Candidate


def longest_ago(candidates: Sequence[Candidate], last_turns: Mapping[str, int]) -> Candidate | None:
    """The candidate whose last turn is the oldest, the first of equals; ``None`` if their weights differ."""
    chosen, oldest = candidates[0], -1
    weight: float = chosen.weight
    for each in candidates:
        if each.weight != weight:
            return None
        turn = last_turns.get(each.replica, 0)
        if oldest < 0 or turn < oldest:
            chosen, oldest = each, turn
    return chosen


def best_of(candidates: Sequence[Candidate], by_priority: int, by_load: int, by_latency: int, weight: int) -> Candidate:
    """The candidate with the highest score, the first of equals."""
    scores = scores_of(candidates, by_priority, by_load, by_latency, weight)
    return candidates[scores.index(max(scores))]


def scores_of(
    candidates: Sequence[Candidate], by_priority: int, by_load: int, by_latency: int, weight: int
) -> list[int]:
    """The weighted means of the figures of the scorers priority, load and latency, rounded down."""
    scores = []
    for candidate in candidates:
        load, priority = candidate.load, candidate.priority
        pending: int = load.pending
        ms: float = load.avg_latency_ms
        if candidate.wake_s:
            ms += 1e3 * candidate.wake_s
        total = by_priority * (100 - priority) if priority < 100 else 0
        if pending < 100:
            total += by_load * (100 - pending)
        if ms < 1000:
            total += by_latency * (100 - int(ms) // 10)
        scores.append(total // weight)
    return scores
