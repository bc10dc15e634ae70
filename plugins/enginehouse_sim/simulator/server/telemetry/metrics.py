"""The figures of ``/metrics``."""

from __future__ import annotations

from enginehouse_sim.simulator.core.engine_core import StepResult
from enginehouse_sim.simulator.server.telemetry.histogram import Histogram

_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1, *(2**power for power in range(3, 15)))
_LENGTH = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """Counters and histograms since the engine's start; times in seconds, with vLLM's bounds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.num_drafts = 0
        self.finished = dict.fromkeys(_REASONS, 0)
        self.time_to_first_token = Histogram(_FIRST_TOKEN)
        self.inter_token_latency = Histogram(_TOKEN)
        self.request_time_per_output_token = Histogram(_TOKEN)
        self.request_latency = Histogram(_REQUEST)
        self.queue_time = Histogram(_REQUEST)
        self.inference_time = Histogram(_REQUEST)
        self.prefill_time = Histogram(_REQUEST)
        self.decode_time = Histogram(_REQUEST)
        self.request_prompt_tokens = Histogram(_LENGTH)
        self.request_generation_tokens = Histogram(_LENGTH)
        self.iteration_tokens = Histogram(_STEP_TOKENS)

    def on_step(self, result: StepResult) -> None:
        if result.scheduled.total_num_scheduled_tokens:
            self.iteration_tokens.observe(result.scheduled.total_num_scheduled_tokens)
        self.num_drafts += len(result.scheduled.scheduled_spec_decode_tokens)


class RequestMeter:
    """Measures one request, and adds it to the metrics."""

    __slots__ = ("_arrival", "_first", "_last", "_metrics", "_prompt_tokens", "_scheduled", "_tokens")

    def __init__(self, metrics: Metrics, arrival: float, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._prompt_tokens = prompt_tokens
        self._scheduled: float | None = None
        self._first: float | None = None
        self._last = arrival
        self._tokens = 0

    def scheduled(self, now: float) -> None:
        """The first step of the request began."""
        self._scheduled = max(now, self._arrival)

    def tokens(self, count: int, now: float) -> None:
        """The request got ``count`` tokens at once."""
        metrics = self._metrics
        if self._first is None:
            self._first = now
            metrics.prompt_tokens += self._prompt_tokens
            metrics.time_to_first_token.observe(now - self._arrival)
        else:
            metrics.inter_token_latency.observe(now - self._last)
        self._last = now
        self._tokens += count
        metrics.generation_tokens += count

    def finished(self, reason: str, now: float) -> None:
        """The request ended for ``reason``."""
        metrics = self._metrics
        metrics.finished[reason] += 1
        metrics.request_latency.observe(now - self._arrival)
        metrics.request_prompt_tokens.observe(self._prompt_tokens)
        metrics.request_generation_tokens.observe(self._tokens)
        if self._scheduled is None:
            return
        metrics.queue_time.observe(self._scheduled - self._arrival)
        metrics.inference_time.observe(now - self._scheduled)
        if self._first is not None:
            decoding = self._last - self._first
            metrics.prefill_time.observe(self._first - self._scheduled)
            metrics.decode_time.observe(decoding)
            if self._tokens > 1:
                metrics.request_time_per_output_token.observe(decoding / (self._tokens - 1))
        elif reason != "abort":  # a pooling request: its prompt is computed now
            metrics.prompt_tokens += self._prompt_tokens
