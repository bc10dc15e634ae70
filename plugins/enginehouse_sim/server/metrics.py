"""The engine's ``/metrics``, under vLLM's names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from enginehouse_sim.clock import Clock
from enginehouse_sim.server.engine import Figures

_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)


class Histogram:
    """How often something took how many seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """It took ``seconds`` once more."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The histogram in Prometheus' text format."""
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """What has been counted since the engine started. ``model`` labels every figure."""

    def __init__(self, model: str) -> None:
        escaped = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._labels = f'engine="0",model_name="{escaped}"'
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0}
        self.time_to_first_token = Histogram()
        self.inter_token_latency = Histogram()
        self.request_latency = Histogram()

    def render(self, figures: Figures) -> str:
        """The whole page in Prometheus' text format."""
        return "\n".join([*self._gauges(figures), *self._counters(), *self._histograms(), ""])

    def _gauges(self, figures: Figures) -> Iterator[str]:
        yield from self._line("num_requests_running", "gauge", figures.running)
        yield from self._line("num_requests_waiting", "gauge", figures.waiting)
        yield from self._line("kv_cache_usage_perc", "gauge", figures.kv_usage)

    def _counters(self) -> Iterator[str]:
        yield from self._line("prompt_tokens_total", "counter", self.prompt_tokens)
        yield from self._line("generation_tokens_total", "counter", self.generation_tokens)
        yield "# TYPE vllm:request_success_total counter"
        for reason, count in self.finished.items():
            yield f'vllm:request_success_total{{{self._labels},finished_reason="{reason}"}} {count}'

    def _histograms(self) -> Iterator[str]:
        yield from self.time_to_first_token.lines("vllm:time_to_first_token_seconds", self._labels)
        yield from self.inter_token_latency.lines("vllm:inter_token_latency_seconds", self._labels)
        yield from self.request_latency.lines("vllm:e2e_request_latency_seconds", self._labels)

    def _line(self, name: str, kind: str, value: float) -> Iterator[str]:
        yield f"# TYPE vllm:{name} {kind}"
        yield f"vllm:{name}{{{self._labels}}} {value}"


class RequestMeter:
    """Times one request, from now on, and adds it to the metrics."""

    def __init__(self, metrics: Metrics, clock: Clock, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._clock = clock
        self._prompt_tokens = prompt_tokens
        self._started = clock.now()
        self._last: float | None = None

    def token(self) -> None:
        """The request got a token."""
        now = self._clock.now()
        if self._last is None:
            self._metrics.prompt_tokens += self._prompt_tokens
            self._metrics.time_to_first_token.observe(now - self._started)
        else:
            self._metrics.inter_token_latency.observe(now - self._last)
        self._last = now
        self._metrics.generation_tokens += 1

    def finished(self, reason: str) -> None:
        """The request is over. One that was only to be read has been read now."""
        if self._last is None and reason != "abort":
            self._metrics.prompt_tokens += self._prompt_tokens
        self._metrics.finished[reason] += 1
        self._metrics.request_latency.observe(self._clock.now() - self._started)
