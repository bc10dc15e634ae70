"""Writes a step model as files of measured latencies, in the form that Llumnix's predictors read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enginehouse_sim.simulator.steps.models import StepLoad, StepModel

_PROMPTS = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_LENGTHS = (8, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def first_token_file(model: StepModel, metadata: dict[str, str]) -> dict[str, Any]:
    """The durations of steps that compute one prompt, for each of several lengths."""
    points = [{"tokens_num": tokens, **_milliseconds(model, _prompt(tokens))} for tokens in _PROMPTS]
    return _file(points, metadata)


def output_token_file(model: StepModel, metadata: dict[str, str], total_tokens: int) -> dict[str, Any]:
    """The durations of steps that decode, for each pair of a batch size and a length.

    ``total_tokens``: the size of the KV cache, for models that depend on the share in use.
    """
    points = [
        {
            "batch_size": batch,
            "tokens_per_request": length,
            **_milliseconds(model, _decode(batch, length, total_tokens)),
        }
        for batch in _BATCHES
        for length in _LENGTHS
    ]
    return _file(points, metadata)


def _prompt(tokens: int) -> StepLoad:
    return StepLoad(prefill_tokens=tokens, own_pairs=tokens * (tokens + 1) // 2, first_tokens=1)


def _decode(batch: int, length: int, total_tokens: int) -> StepLoad:
    return StepLoad(decodes=batch, active_kv_tokens=batch * length, total_kv_tokens=total_tokens)


def _milliseconds(model: StepModel, load: StepLoad) -> dict[str, Any]:
    """A model has no spread: all figures are the same."""
    duration = round(model.seconds(load) * 1000, 3)
    figures = dict.fromkeys(("mean", "min", "max", "p50", "p95", "p99"), duration)
    return {**figures, "std": 0.0, "raw_data": []}


def _file(points: Sequence[dict[str, Any]], metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": metadata, "results": points}
