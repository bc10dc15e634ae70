"""What was counted of requests that ended in one span of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from enginehouse.pages import ModelTotals


class Amounts:
    """Counts of ended requests and their tokens, and of two of their times. The fields are those of ``ModelTotals``."""

    def __init__(self) -> None:
        self.requests = self.failed = self.refused = self.left = 0
        self.tokens_in = self.tokens_cached = self.tokens_out = 0
        self.first_token: dict[float, int] = {}
        self.inter_token: dict[float, int] = {}

    def add(self, other: Amounts | ModelTotals, sign: int = 1) -> None:
        """Count what ``other`` counts, too; with a ``sign`` of -1, no longer."""
        self.requests += sign * other.requests
        self.failed += sign * other.failed
        self.refused += sign * other.refused
        self.left += sign * other.left
        self.tokens_in += sign * other.tokens_in
        self.tokens_cached += sign * other.tokens_cached
        self.tokens_out += sign * other.tokens_out
        for mine, theirs in ((self.first_token, other.first_token), (self.inter_token, other.inter_token)):
            if not mine:
                mine.update(theirs)
                continue
            for bound, count in theirs.items():
                if count:
                    mine[bound] += sign * count

    def figures(self, seconds: float) -> Iterator[tuple[str, float]]:
        """The values of metrics, if this is what ended within so many ``seconds``."""
        yield "requests", self.requests / seconds
        yield "failed", self.failed / seconds
        yield "refused", self.refused / seconds
        yield "left", self.left / seconds
        yield "tokens_in", self.tokens_in / seconds
        yield "tokens_out", self.tokens_out / seconds
        if self.tokens_in:
            yield "cached_ratio", self.tokens_cached / self.tokens_in
        for name, counts in (("ttft", self.first_token), ("itl", self.inter_token)):
            if any(counts.values()):
                yield f"{name}_ms_p50", 1000 * quantile(0.5, counts)
                yield f"{name}_ms_p99", 1000 * quantile(0.99, counts)


def quantile(share: float, counts: Mapping[float, int]) -> float:
    """The value that the ``share`` of those counted does not exceed. ``counts``: of each bound, in ascending order.

    Within a bucket, values are taken as evenly spread, as Prometheus's ``histogram_quantile`` does. Above the last
    finite bound, the value is that bound.
    """
    rank, below, lower = share * sum(counts.values()), 0, 0.0
    for bound, count in counts.items():
        if bound == inf:
            break
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return lower
