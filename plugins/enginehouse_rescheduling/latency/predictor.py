"""The latencies that a load causes."""

from __future__ import annotations

from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_rescheduling.latency.grid import Grid
from enginehouse_rescheduling.latency.profile import first_token_grid, output_token_grid

_SHORTEST = 8.0
"""The least tokens per request that are looked up, as in Llumnix."""


class LatencyPredictor:
    """Predicts milliseconds from two grids of measured steps."""

    def __init__(self, first_token: Grid, output_token: Grid) -> None:
        self._first_token = first_token
        self._output_token = output_token

    @classmethod
    def of(cls, settings: ReschedulingSettings) -> LatencyPredictor:
        """The predictor with the configured profiles. Raises ``ConfigError`` if one cannot be used."""
        return cls(first_token_grid(settings.ttft_profile), output_token_grid(settings.tpot_profile))

    def decode_step(self, requests: int, tokens: int) -> float:
        """The duration of a step that decodes ``requests`` of ``tokens`` in all; 0 without any."""
        if requests <= 0 or tokens <= 0:
            return 0.0
        return self._output_token.value(requests, max(tokens / requests, _SHORTEST))

    def prefill(self, tokens: int, most_per_step: int, decodes: int, decode_tokens: int) -> float:
        """The duration of all steps that compute ``tokens`` of prompts, each beside the same decodes.

        ``most_per_step``: the tokens of a full step; 0 if one step computes all.
        """
        beside = self.decode_step(decodes, decode_tokens)
        if beside == float("inf"):
            return beside
        full, rest = divmod(max(tokens, 0), most_per_step) if most_per_step > 0 else (0, max(tokens, 0))
        total = full * (self._first_token.value(most_per_step, 0.0) + beside) if full else 0.0
        return total + (self._first_token.value(rest, 0.0) + beside if rest else 0.0)
