"""Observations of an engine: what it did, and how long that took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from enginehouse_sim.simulator.steps.costs import PassCosts

Kind = Literal["prompt", "decode", "mixed", "waiting", "cached"]


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """Equal passes of an engine, as in ``StepLoad``; ``passes`` of them. Means over passes may be fractions."""

    passes: float = 1.0
    prompt_tokens: float = 0.0
    pairs: float = 0.0
    first_tokens: float = 0.0
    decodes: float = 0.0
    kv_tokens: float = 0.0
    waiting: float = 0.0

    def milliseconds(self, costs: PassCosts) -> float:
        """How long all passes take with these costs."""
        ms = costs.fixed_ms + max(costs.weights_ms, costs.token_ms * (self.prompt_tokens + self.decodes))
        ms += costs.kv_token_ms * self.kv_tokens + costs.sequence_ms * (self.decodes + self.first_tokens)
        ms += costs.waiting_ms * self.waiting
        if self.prompt_tokens:
            ms += costs.prompt_ms + costs.pair_ms * self.pairs
        return self.passes * ms


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement.

    ``point``: the name of what was measured; repeats have the same. ``requests``: the requests whose way through HTTP
    the time includes. ``ms``: the time of all ``work`` together, in milliseconds. ``uncached``: of a ``cached`` prompt,
    the work if the engine reads it again.
    """

    point: str
    kind: Kind
    work: Sequence[StepWork]
    requests: float = 0.0
    ms: float
    uncached: Sequence[StepWork] = ()

    def predicted(self, costs: PassCosts, request_ms: float) -> float:
        """The time in milliseconds that the costs give."""
        return self.requests * request_ms + sum(work.milliseconds(costs) for work in self.work)


def prompt_work(tokens: int, cached: int = 0) -> StepWork:
    """One pass that computes a prompt of so many ``tokens`` behind those that are ``cached``."""
    return StepWork(prompt_tokens=tokens, pairs=tokens * cached + tokens * (tokens + 1) / 2, first_tokens=1)
