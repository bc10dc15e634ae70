"""The choices of strategies, which change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from enginehouse import Candidate

_LEAD: Final = 16
"""So many more requests than its equals an engine may have had, and still be asked first."""
_MOST_REPLICAS: Final = 16_384


def forget_oldest(turns: dict[str, Any]) -> None:
    """Drop the oldest entries of replicas while there are very many: those are probably gone."""
    while len(turns) > _MOST_REPLICAS:
        del turns[next(iter(turns))]


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


def best_of(
    candidates: Sequence[Candidate],
    by_priority: int,
    by_load: int,
    by_latency: int,
    weight: int,
    turns: Mapping[str, int],
) -> tuple[Candidate, int]:
    """As ``first_of``, by the figures of the scorers priority, load and latency. It runs for every request."""
    return first_of(candidates, scores_of(candidates, by_priority, by_load, by_latency, weight), turns)


def first_of(
    candidates: Sequence[Candidate], scores: Sequence[float], turns: Mapping[str, int]
) -> tuple[Candidate, int]:
    """The first of the candidates with the highest score, until it is ahead of its equals, and its turns so far.

    ``turns`` counts the requests of replicas. One that was away has more turns than requests: it need not catch up.

    So an engine does not get all requests because it is named first, and each of them has fresh figures. As scores
    are rounded, equals must have the same priority and time to wake too.
    """
    best = max(scores)
    first = candidates[scores.index(best)]
    if scores.count(best) > 1:
        return _least_ahead(
            [
                each
                for each, score in zip(candidates, scores)  # noqa: B905 - equally long
                if score == best and each.priority == first.priority and each.wake_s == first.wake_s
            ],
            turns,
        )
    return first, turns.get(first.replica, 0)


def _least_ahead(equals: Sequence[Candidate], turns: Mapping[str, int]) -> tuple[Candidate, int]:
    had = [turns.get(each.replica, 0) for each in equals]
    most = max(had)
    least = max(min(had), most - _LEAD)
    chosen = 0
    while had[chosen] >= least + _LEAD:
        chosen += 1
    return equals[chosen], max(least, had[chosen])


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
