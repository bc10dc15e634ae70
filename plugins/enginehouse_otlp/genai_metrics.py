"""The histograms of OpenTelemetry's conventions for generative AI, for a collector."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from enginehouse import Observer, RequestRecord
from enginehouse_otlp.messages import MetricRecord, Point
from enginehouse_otlp.operations import operation

_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
_TOKENS: Final = tuple(float(4**power) for power in range(14))
_FIRST: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_EACH: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_FAILED: Final = 500
_OTHER: Final = "other"


class _Info(NamedTuple):
    unit: str
    bounds: tuple[float, ...]
    text: str


_CLIENT_DURATION, _CHUNK = "gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"
_USAGE, _SERVER_DURATION = "gen_ai.client.token.usage", "gen_ai.server.request.duration"
_FIRST_TOKEN, _PER_TOKEN = "gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"
METRICS: Final[Mapping[str, _Info]] = {
    _CLIENT_DURATION: _Info("s", _SECONDS, "From sending a request to an engine to the end of its answer."),
    _CHUNK: _Info("s", _FIRST, "From sending a request to an engine to the first event of its stream."),
    _USAGE: _Info("{token}", _TOKENS, "Tokens of a prompt or an answer, as the engine counted them."),
    _SERVER_DURATION: _Info("s", _SECONDS, "From a whole request at the gateway to the end of its answer."),
    _FIRST_TOKEN: _Info("s", _FIRST, "From a whole request at the gateway to the first event of its stream."),
    _PER_TOKEN: _Info("s", _EACH, "The mean time between the tokens of a stream."),
}

_Labels = tuple[tuple[str, str], ...]


class _Observed:
    """The number of values in each bucket, by upper ``bounds``; the last bucket has none."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class GenaiMetrics(Observer):
    """Counts the records of requests for generative AI that had a route. ``most``: series of each metric."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._series: dict[str, dict[_Labels, _Observed]] = {name: {} for name in METRICS}

    def finished(self, record: RequestRecord) -> None:
        """Count one request."""
        named = operation(record.path)
        if not named or record.model is None:
            return
        labels: _Labels = (
            ("gen_ai.operation.name", named),
            ("gen_ai.provider.name", record.driver or _OTHER),
            ("gen_ai.request.model", record.model),
        )
        failure = (("error.type", record.code or str(record.status)),) if record.status >= _FAILED else ()
        self._observe(_SERVER_DURATION, labels + failure, record.ended - record.arrived)
        if record.sent is not None:
            self._observe(_CLIENT_DURATION, labels + failure, record.ended - record.sent)
        if record.stream and record.first_byte is not None:
            self._count_stream(record, labels, record.first_byte)
        for kind, tokens in (("input", record.tokens_in), ("output", record.tokens_out)):
            if tokens is not None:
                self._observe(_USAGE, (*labels, ("gen_ai.token.type", kind)), tokens)

    def collect(self) -> Iterator[MetricRecord]:
        """Every metric, as the exporter takes it."""
        for name, (unit, bounds, text) in METRICS.items():
            series = self._series[name].items()
            points = [Point(dict(labels), each.total, tuple(each.counts)) for labels, each in series]
            yield MetricRecord(name, "histogram", text, unit, points, bounds)

    def _count_stream(self, record: RequestRecord, labels: _Labels, first: float) -> None:
        self._observe(_FIRST_TOKEN, labels, first - record.arrived)
        if record.sent is not None:
            self._observe(_CHUNK, labels, first - record.sent)
        count = record.tokens_out or record.events
        if count > 1:
            self._observe(_PER_TOKEN, labels, (record.ended - first) / (count - 1))

    def _observe(self, name: str, labels: _Labels, value: float) -> None:
        series = self._series[name]
        if labels not in series and len(series) >= self._most:
            labels = tuple((key, _OTHER) if key == "gen_ai.request.model" else (key, text) for key, text in labels)
        found = series.get(labels)
        if found is None:
            found = series[labels] = _Observed(METRICS[name].bounds)
        found.observe(value)
