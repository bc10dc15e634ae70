"""The figures of ``/metrics``."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.core.step_result import StepResult
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
_CHOICES = (1, 2, 5, 10, 20)
_PREEMPTIONS = (0, 1, 2, 3, 5, 10, 20, 50)
_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """Counters and histograms since the engine's start; times in seconds, with vLLM's bounds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.cached_tokens = 0
        self.num_drafts = 0
        self.accepted_at: list[int] = []
        """The number of accepted drafts by their position in a step, from 0."""
        self.finished = dict.fromkeys(_REASONS, 0)
        self.histograms: dict[str, Histogram] = {}
        """By vLLM's names."""
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", _FIRST_TOKEN)
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", _TOKEN)
        self.histograms["time_per_output_token_seconds"] = self.inter_token_latency  # until 2025; dashboards use it
        self.request_time_per_output_token = self._histogram("request_time_per_output_token_seconds", _TOKEN)
        self.request_latency = self._histogram("e2e_request_latency_seconds", _REQUEST)
        self.queue_time = self._histogram("request_queue_time_seconds", _REQUEST)
        self.inference_time = self._histogram("request_inference_time_seconds", _REQUEST)
        self.prefill_time = self._histogram("request_prefill_time_seconds", _REQUEST)
        self.decode_time = self._histogram("request_decode_time_seconds", _REQUEST)
        self.request_prompt_tokens = self._histogram("request_prompt_tokens", _LENGTH)
        self.request_generation_tokens = self._histogram("request_generation_tokens", _LENGTH)
        self.request_longest_answer = self._histogram("request_max_num_generation_tokens", _LENGTH)
        self.request_max_tokens = self._histogram("request_params_max_tokens", _LENGTH)
        self.request_choices = self._histogram("request_params_n", _CHOICES)
        self.request_computed_tokens = self._histogram("request_prefill_kv_computed_tokens", _LENGTH)
        self.request_preemptions = self._histogram("request_num_preemptions", _PREEMPTIONS)
        self.iteration_tokens = self._histogram("iteration_tokens_total", _STEP_TOKENS)

    def _histogram(self, name: str, bounds: Sequence[float]) -> Histogram:
        self.histograms[name] = histogram = Histogram(bounds)
        return histogram

    def on_step(self, result: StepResult) -> None:
        if result.scheduled.total_num_scheduled_tokens:
            self.iteration_tokens.observe(result.scheduled.total_num_scheduled_tokens)
        drafts = result.scheduled.scheduled_spec_decode_tokens
        if not drafts:
            return
        self.num_drafts += len(drafts)
        for output in result.outputs:
            if output.request_id in drafts:
                self._accept(len(output.new_token_ids) - 1)

    def _accept(self, num_drafts: int) -> None:
        self.accepted_at += [0] * (num_drafts - len(self.accepted_at))
        for place in range(num_drafts):
            self.accepted_at[place] += 1


class ChoicesMeter:
    """Measures the ``choices`` answers to one prompt together."""

    def __init__(self, metrics: Metrics, choices: int) -> None:
        self._metrics = metrics
        self._choices = self._missing = choices
        self._longest = 0

    def finished(self, tokens: int) -> None:
        """An answer has ended with this number of tokens."""
        self._missing -= 1
        self._longest = max(self._longest, tokens)
        if not self._missing:
            self._metrics.request_choices.observe(self._choices)
            self._metrics.request_longest_answer.observe(self._longest)


class RequestMeter:
    """Measures one request, and adds it to the metrics."""

    def __init__(
        self, metrics: Metrics, arrival: float, prompt_tokens: int, max_tokens: int, choices: ChoicesMeter
    ) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._choices = choices
        self._cached_tokens = 0
        self._scheduled: float | None = None
        self._first: float | None = None
        self._last = arrival
        self._tokens = 0

    def scheduled(self, now: float) -> None:
        """The first step of the request began."""
        self._scheduled = max(now, self._arrival)

    def tokens(self, count: int, cached_tokens: int, now: float) -> None:
        """The request got ``count`` tokens at once; ``cached_tokens`` of its prompt were cached."""
        metrics = self._metrics
        if self._first is None:
            self._first = now
            self._read(cached_tokens)
            metrics.time_to_first_token.observe(now - self._arrival)
        else:
            metrics.inter_token_latency.observe(now - self._last)
        self._last = now
        self._tokens += count
        metrics.generation_tokens += count

    def _read(self, cached_tokens: int) -> None:
        """Count the prompt, which is computed now."""
        self._cached_tokens = cached_tokens = max(0, min(cached_tokens, self._prompt_tokens))
        self._metrics.prompt_tokens += self._prompt_tokens
        self._metrics.cached_tokens += cached_tokens

    def finished(self, reason: str, now: float, num_preemptions: int = 0) -> None:
        """The request ended for ``reason``."""
        metrics = self._metrics
        metrics.finished[reason] += 1
        metrics.request_max_tokens.observe(self._max_tokens)
        metrics.request_preemptions.observe(num_preemptions)
        self._choices.finished(self._tokens)
        metrics.request_latency.observe(now - self._arrival)
        metrics.request_prompt_tokens.observe(self._prompt_tokens)
        metrics.request_generation_tokens.observe(self._tokens)
        if self._scheduled is None:
            return
        metrics.queue_time.observe(self._scheduled - self._arrival)
        metrics.inference_time.observe(now - self._scheduled)
        if self._first is not None:
            decoding = self._last - self._first
            metrics.request_computed_tokens.observe(self._prompt_tokens - self._cached_tokens)
            metrics.prefill_time.observe(self._first - self._scheduled)
            metrics.decode_time.observe(decoding)
            if self._tokens > 1:
                metrics.request_time_per_output_token.observe(decoding / (self._tokens - 1))
        elif reason != "abort":  # a pooling request: its prompt is computed now
            self._read(0)
