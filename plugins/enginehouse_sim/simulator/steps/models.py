"""Step models: from the load of a step to its duration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from enginehouse_sim.simulator.steps.interpolation import bilinear, linear
from enginehouse_sim.simulator.steps.load import StepLoad


class StepModel(ABC):
    """A step's duration is the sum of its prefill and its decode share."""

    @abstractmethod
    def prefill_seconds(self, load: StepLoad) -> float:
        """The share of the prompts; called only if there are any."""

    @abstractmethod
    def decode_seconds(self, load: StepLoad) -> float:
        """The share of the decoding requests; called only if there are any."""

    def seconds(self, load: StepLoad) -> float:
        """The duration of a step; 0 for one without load."""
        prefill = self.prefill_seconds(load) if load.prefill_tokens else 0.0
        return prefill + (self.decode_seconds(load) if load.decodes else 0.0)


class ConstantSteps(StepModel):
    """``ttft`` seconds for a step that reaches the end of a prompt, ``tpot`` seconds for one that decodes.

    A request alone gets its first token after ``ttft``, however many steps its prompt takes, and each other one
    ``tpot`` later.
    """

    def __init__(self, ttft: float, tpot: float) -> None:
        self._ttft = ttft
        self._tpot = tpot

    def prefill_seconds(self, load: StepLoad) -> float:
        return self._ttft if load.first_tokens else 0.0

    def decode_seconds(self, load: StepLoad) -> float:
        return self._tpot


class PolynomialSteps(StepModel):
    """Polynomials of the prompt tokens, and of the share of the cache in use.

    ``prefill`` and ``decode`` are coefficients in milliseconds, the highest power first. A decode takes at least
    ``floor_ms``, so that no two tokens of a request arrive at the same time. The form is that of the mock engine in
    NVIDIA Dynamo.
    """

    def __init__(self, prefill: Sequence[float], decode: Sequence[float], floor_ms: float) -> None:
        self._prefill = prefill
        self._decode = decode
        self._floor = floor_ms

    def prefill_seconds(self, load: StepLoad) -> float:
        return _polynomial(self._prefill, load.prefill_tokens) / 1000

    def decode_seconds(self, load: StepLoad) -> float:
        """A cache without capacity counts as full."""
        total = load.total_kv_tokens
        used = min(1.0, load.active_kv_tokens / total) if total else 1.0
        return max(self._floor, _polynomial(self._decode, used)) / 1000


class PrefillTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Milliseconds by the number of prompt tokens in a step, without cached ones before them.

    ``ms_per_pair``: the milliseconds to add for each pair of ``StepLoad.prefill_pairs``.
    """

    tokens: tuple[float, ...]
    ms: tuple[float, ...]
    ms_per_pair: float = 0.0

    def __post_init__(self) -> None:
        _require_axis("prefill.tokens", self.tokens)
        _require_shape("prefill.ms", [self.ms], 1, len(self.tokens))


class DecodeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Milliseconds by cached tokens read (rows) and tokens computed (columns), one for each request and draft."""

    active_kv_tokens: tuple[float, ...]
    batch: tuple[float, ...]
    ms: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _require_axis("decode.active_kv_tokens", self.active_kv_tokens)
        _require_axis("decode.batch", self.batch)
        _require_shape("decode.ms", self.ms, len(self.active_kv_tokens), len(self.batch))


class TableSteps(StepModel):
    """Linear between measured or computed points, and beyond them."""

    def __init__(self, prefill: PrefillTable, decode: DecodeTable) -> None:
        self._prefill = prefill
        self._decode = decode

    def prefill_seconds(self, load: StepLoad) -> float:
        table = self._prefill
        ms = linear(table.tokens, table.ms, load.prefill_tokens) + table.ms_per_pair * load.prefill_pairs
        return max(0.0, ms) / 1000

    def decode_seconds(self, load: StepLoad) -> float:
        table = self._decode
        batch = load.decodes + load.draft_tokens
        return max(0.0, bilinear(table.active_kv_tokens, table.batch, table.ms, load.active_kv_tokens, batch)) / 1000


class SpedUp(StepModel):
    """Divides another model's times: all by ``ratio``, decodes by ``decode_ratio`` as well. 0 means no time at all."""

    def __init__(self, model: StepModel, ratio: float = 1.0, decode_ratio: float = 1.0) -> None:
        self._model = model
        self._prefill = 1 / ratio if ratio else 0.0
        self._decode = self._prefill / decode_ratio if decode_ratio else 0.0

    def prefill_seconds(self, load: StepLoad) -> float:
        return self._model.prefill_seconds(load) * self._prefill

    def decode_seconds(self, load: StepLoad) -> float:
        return self._model.decode_seconds(load) * self._decode


def _polynomial(coefficients: Sequence[float], at: float) -> float:
    value = 0.0
    for coefficient in coefficients:
        value = value * at + coefficient
    return value


def _require_axis(name: str, axis: Sequence[float]) -> None:
    if len(axis) < 2 or any(after <= before for before, after in pairwise(axis)):
        raise ValueError(f"{name} needs two points or more, each greater than the one before")


def _require_shape(name: str, table: Sequence[Sequence[float]], rows: int, columns: int) -> None:
    if len(table) != rows or any(len(row) != columns for row in table):
        raise ValueError(f"{name} needs {rows} x {columns} values, one for each point of its axes")
