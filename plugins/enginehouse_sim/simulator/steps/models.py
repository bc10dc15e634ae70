"""Step models: from the load of a step to its duration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse_sim.simulator.steps.costs import PassCosts, StepLoad


class StepModel(ABC):
    """The time that an engine takes for the load of one step."""

    @abstractmethod
    def seconds(self, load: StepLoad) -> float:
        """The duration of a step; 0 for one without load."""

    def decode_seconds(self, decodes: int, active_kv_tokens: int, total_kv_tokens: int) -> float:
        """The duration of a step in which all requests decode, without drafts, and none waits: that of ``seconds``."""
        load = StepLoad(decodes=decodes, active_kv_tokens=active_kv_tokens, total_kv_tokens=total_kv_tokens)
        return self.seconds(load)

    def decode_ends(self, begin: float, decodes: int, active: int, total: int, count: int, pace: float) -> list[float]:
        """The ends of ``count`` such steps, the first of which begins at ``begin``. Each has one more token a request.

        They take ``pace`` times as long.
        """
        ends: list[float] = []
        for _ in range(count):
            active += decodes
            begin += pace * self.decode_seconds(decodes, active, total)
            ends.append(begin)
        return ends


class ConstantSteps(StepModel):
    """``ttft`` seconds for a step that reaches the end of a prompt, and ``tpot`` more for one that decodes.

    A request alone gets its first token after ``ttft``, however many steps its prompt takes, and each other one
    ``tpot`` later.
    """

    def __init__(self, ttft: float, tpot: float) -> None:
        self._ttft = ttft
        self._tpot = tpot

    def seconds(self, load: StepLoad) -> float:
        return (self._ttft if load.first_tokens else 0.0) + (self._tpot if load.decodes else 0.0)

    def decode_seconds(self, decodes: int, active_kv_tokens: int, total_kv_tokens: int) -> float:
        return self._tpot if decodes else 0.0


def pass_ms(
    costs: PassCosts, prompts: float, answers: float, pairs: float, kv_tokens: float, sequences: float, waiting: float
) -> float:
    """The milliseconds of a pass over so many tokens of ``prompts`` and of ``answers``.

    ``pairs``: of prompts' tokens and their contexts. ``kv_tokens``: those that answers read. ``sequences``: the
    requests that get a token.
    """
    ms = costs.fixed_ms + max(costs.weights_ms, costs.token_ms * (prompts + answers))
    ms += costs.kv_token_ms * kv_tokens + costs.sequence_ms * sequences + costs.waiting_ms * waiting
    if prompts:
        ms += costs.prompt_ms + costs.pair_ms * pairs
    return ms


class PassSteps(StepModel):
    """Every step is one pass over the weights, whatever mix of prompts and answers it computes."""

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs

    def seconds(self, load: StepLoad) -> float:
        prompts, answers = load.prefill_tokens, load.decodes + load.draft_tokens
        if not prompts and not answers:
            return 0.0
        pairs, sequences = load.prefill_pairs + load.own_pairs, load.decodes + load.first_tokens
        return pass_ms(self._costs, prompts, answers, pairs, load.active_kv_tokens, sequences, load.waiting) / 1000

    def decode_seconds(self, decodes: int, active_kv_tokens: int, total_kv_tokens: int) -> float:
        return pass_ms(self._costs, 0, decodes, 0, active_kv_tokens, decodes, 0) / 1000 if decodes else 0.0


class PolynomialSteps(StepModel):
    """The sum of two polynomials: of the prompt tokens, and of the share of the cache in use.

    ``prefill`` and ``decode`` are coefficients in milliseconds, the highest power first. A decode takes at least
    ``floor_ms``, so that no two tokens of a request arrive at the same time. The form is that of the mock engine in
    NVIDIA Dynamo, which adds them up in mixed steps too.
    """

    def __init__(self, prefill: Sequence[float], decode: Sequence[float], floor_ms: float) -> None:
        self._prefill = list(prefill)
        self._decode = list(decode)
        self._floor = floor_ms

    def seconds(self, load: StepLoad) -> float:
        prefill = _polynomial(self._prefill, load.prefill_tokens) / 1000 if load.prefill_tokens else 0.0
        return prefill + self.decode_seconds(load.decodes, load.active_kv_tokens, load.total_kv_tokens)

    def decode_seconds(self, decodes: int, active_kv_tokens: int, total_kv_tokens: int) -> float:
        """A cache without capacity counts as full."""
        if not decodes:
            return 0.0
        used = min(1.0, active_kv_tokens / total_kv_tokens) if total_kv_tokens else 1.0
        return max(self._floor, _polynomial(self._decode, used)) / 1000


def _polynomial(coefficients: list[float], at: float) -> float:
    value = 0.0
    for coefficient in coefficients:
        value = value * at + coefficient
    return value
