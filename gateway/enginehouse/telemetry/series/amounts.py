"""What was counted of requests that ended in one span of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from enginehouse.telemetry.counters import BUCKETS, SHORT_BUCKETS, Series


class Amounts:
    """Counts of ended requests and their tokens, and two of their times: how many fell into each bucket."""

    __slots__ = ("cached", "failed", "first_token", "inter_token", "requests", "tokens_in", "tokens_out")

    def __init__(self, requests: int = 0, failed: int = 0) -> None:
        self.requests = requests
        self.failed = failed
        self.tokens_in = self.tokens_out = self.cached = 0
        self.first_token: dict[int, int] = {}
        self.inter_token: dict[int, int] = {}

    def add(self, other: Amounts) -> None:
        """Count what ``other`` counts, too."""
        self.requests += other.requests
        self.failed += other.failed
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.cached += other.cached
        for mine, theirs in ((self.first_token, other.first_token), (self.inter_token, other.inter_token)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count

    def figures(self, seconds: float) -> Iterator[tuple[str, float]]:
        """The values of metrics, if this is what ended within so many ``seconds``."""
        yield "requests", self.requests / seconds
        yield "failed", self.failed / seconds
        yield "tokens_in", self.tokens_in / seconds
        yield "tokens_out", self.tokens_out / seconds
        if self.tokens_in:
            yield "cached_ratio", self.cached / self.tokens_in
        for name, counts, bounds in (("ttft", self.first_token, BUCKETS), ("itl", self.inter_token, SHORT_BUCKETS)):
            if counts:
                yield f"{name}_ms_p50", 1000 * quantile(0.5, counts, bounds)
                yield f"{name}_ms_p99", 1000 * quantile(0.99, counts, bounds)


class CountedSeries:
    """Reads what has ended at one model of one backend since the last time. ``series`` counts it."""

    __slots__ = ("_first_token", "_inter_token", "_marks", "_read", "_series")

    def __init__(self, series: Series) -> None:
        self._series = series
        self._marks = 0.0, 0.0
        self._read = (0, 0, 0, 0, 0)
        self._first_token: Sequence[int] = ()
        self._inter_token: Sequence[int] = ()

    def new(self) -> Amounts | None:
        """What has ended since the last call; ``None`` if nothing has."""
        series = self._series
        marks = series.duration.total, series.first_byte.total
        if marks == self._marks:
            return None
        self._marks = marks
        read, before = _totals(series), self._read
        self._read = read
        new = Amounts(read[0] - before[0], read[1] - before[1])
        new.tokens_in, new.cached, new.tokens_out = read[2] - before[2], read[3] - before[3], read[4] - before[4]
        new.first_token = _new(self._first_token, series.first_token.counts)
        new.inter_token = _new(self._inter_token, series.inter_token.counts)
        if new.first_token:
            self._first_token = tuple(series.first_token.counts)
        if new.inter_token:
            self._inter_token = tuple(series.inter_token.counts)
        return new


def _totals(series: Series) -> tuple[int, int, int, int, int]:
    """The requests, those that failed, and the tokens of prompts, of their cached parts, and of answers."""
    requests = failed = prompts = cached = answers = 0
    for counts in series.keys.values():
        for (status, _), count in counts.requests.items():
            requests += count
            failed += count if status >= 400 else 0
        prompts += counts.input_tokens
        cached += counts.cached_tokens
        answers += counts.from_usage + counts.from_chunks
    return requests, failed, prompts, cached, answers


def _new(before: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
    if not before:
        return {bucket: count for bucket, count in enumerate(counts) if count}
    return {bucket: count - old for bucket, (count, old) in enumerate(zip(counts, before, strict=True)) if count != old}


def quantile(share: float, counts: Mapping[int, int], bounds: Sequence[float]) -> float:
    """The value that the ``share`` of those counted does not exceed, in the unit of ``bounds``.

    Within a bucket, values are taken as evenly spread, as Prometheus's ``histogram_quantile`` does. Above the last
    bound, the value is that bound.
    """
    rank, below = share * sum(counts.values()), 0
    for bucket, count in sorted(counts.items()):
        if below + count >= rank and bucket < len(bounds):
            lower = bounds[bucket - 1] if bucket else 0.0
            return lower + (bounds[bucket] - lower) * (rank - below) / count
        below += count
    return bounds[-1]
