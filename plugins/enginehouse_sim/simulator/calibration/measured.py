"""What an engine did under a trace, in a file to compare other predictions with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.figures.record import Record
from enginehouse_sim.simulator.replay.figures.report import report

_LATENCIES = ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms")
_SHARES = ("p50", "p90", "p99")
_THROUGHPUT = ("requests_per_second", "output_tokens_per_second")


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run by their names. ``failed``: the requests that the engine did not answer."""

    requests: int
    failed: int
    figures: Mapping[str, float]


def measured_run(record: Record) -> MeasuredRun:
    """The figures of a replay, or of a trace that was played to an engine."""
    found = report(record)
    figures = {
        f"{name} {share}": float(getattr(getattr(found, name), share)) for name in _LATENCIES for share in _SHARES
    }
    figures |= {name: float(getattr(found, name)) for name in _THROUGHPUT}
    return MeasuredRun(requests=found.requests, failed=found.rejected, figures=figures)


def read_runs(path: Path, requests: int) -> list[MeasuredRun]:
    """The runs in a file, of a trace with so many requests. Raises ``ConfigError``."""
    try:
        runs = msgspec.json.decode(path.read_bytes(), type=list[MeasuredRun])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(path)) from None
    if not runs or any(run.requests + run.failed != requests for run in runs):
        raise ConfigError("has no runs of this trace", file=str(path), remedy="remove it to measure the engine again")
    return runs


def write_runs(path: Path, runs: Sequence[MeasuredRun]) -> None:
    """Keep the runs in a file. Raises ``ConfigError``."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1))
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None
