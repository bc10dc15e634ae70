"""Compares a replay with the engine itself, under the same requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter

import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError, GatewayError
from enginehouse_sim.simulator.calibration.prober import prompt_tokens
from enginehouse_sim.simulator.calibration.streams import EngineAddress, body_for, stream
from enginehouse_sim.simulator.replay.answer import AnswerRecord, count_gap
from enginehouse_sim.simulator.replay.report import Record, report
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.steps.profile import Accuracy

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


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``error``: of the prediction, as a share of what was measured; ``None`` if that is 0.

    ``spread``: how far the runs of the engine were apart, as a share of their mean; ``None`` with one run.
    """

    figure: str
    predicted: float
    measured: float
    error: float | None
    spread: float | None


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one trace. ``failed``: requests that the engine did not answer, in all runs together."""

    profile: str
    requests: int
    runs: int
    failed: int
    figures: Sequence[Compared]
    accuracy: Accuracy


class _Play:
    """Sends the requests of a trace at their arrivals in real time, and records the answers."""

    def __init__(self, address: EngineAddress, requests: Sequence[TraceRequest]) -> None:
        self.record = Record()
        self.problem = f"{address.url} answers without a token"
        self._address = address
        self._requests = requests
        self._chance = random.Random()
        self._run = self._chance.getrandbits(64)  # the engine's cache may have the prompts of earlier runs

    async def play(self, on_progress: Callable[[float], None]) -> Record:
        began = perf_counter()
        sent = []
        for request in self._requests:
            await asyncio.sleep(max(0.0, began + request.arrival - perf_counter()))
            sent.append(asyncio.ensure_future(self._send(request, began)))
        for done, answer in enumerate(asyncio.as_completed(sent), 1):
            await answer
            on_progress(done / len(sent))
        self.record.ended = perf_counter() - began
        return self.record

    async def _send(self, request: TraceRequest, began: float) -> None:
        body = body_for("", real_prompt(request, self._run, self._chance), max(1, request.output_length))
        try:
            timed = await stream(self._address, body)
        except GatewayError as error:
            self.record.reject("failed")
            self.problem = str(error)
            return
        if not timed.events:
            self.record.reject("empty")
            return
        answer = AnswerRecord(timed.sent - began, request.input_length)
        answer.first_token, answer.last_token = timed.events[0] - began, timed.events[-1] - began
        answer.output_tokens = timed.tokens or len(timed.events)
        for before, after in zip(timed.events, timed.events[1:], strict=False):
            count_gap(self.record.gaps, after - before, 1)
        self.record.finish(answer)


async def played(
    address: EngineAddress, requests: Sequence[TraceRequest], runs: int, on_progress: Callable[[float], None]
) -> list[Record]:
    """Play the trace several times, each time with other prompts. Raises ``GatewayError`` if no request is answered."""
    records: list[Record] = []

    def note(share: float) -> None:
        on_progress((len(records) + share) / runs)

    for _ in range(runs):
        play = _Play(address, requests)
        record = await play.play(note)
        if not record.requests:
            raise GatewayError(f"None of the requests was answered: {play.problem}")
        records.append(record)
    return records


def real_prompt(request: TraceRequest, run: int, chance: random.Random) -> list[int]:
    """The tokens of a prompt: those of its prefix ids are the same in all requests of a run, all others are new."""
    prompt: list[int] = []
    for prefix in request.prefix_ids:
        prompt += prompt_tokens(random.Random(f"{run} {prefix}"), request.prefix_tokens)
    del prompt[request.input_length :]
    return prompt + prompt_tokens(chance, request.input_length - len(prompt))


def compared(predicted: MeasuredRun, runs: Sequence[MeasuredRun], profile: str) -> Validation:
    """The errors of the prediction. Several runs of the engine count by their mean."""
    figures = [_compared(name, value, [run.figures[name] for run in runs]) for name, value in predicted.figures.items()]
    return Validation(
        profile=profile,
        requests=runs[0].requests,
        runs=len(runs),
        failed=sum(run.failed for run in runs),
        figures=figures,
        accuracy=_accuracy({each.figure: each.error for each in figures}, runs[0].requests),
    )


def _compared(figure: str, predicted: float, runs: Sequence[float]) -> Compared:
    middle = mean(runs)
    return Compared(
        figure=figure,
        predicted=round(predicted, 3),
        measured=round(middle, 3),
        error=round(predicted / middle - 1, 4) if middle else None,
        spread=round((max(runs) - min(runs)) / middle, 4) if len(runs) > 1 and middle else None,
    )


def _accuracy(errors: Mapping[str, float | None], requests: int) -> Accuracy:
    found = {
        f"{name}_{share}": errors[f"{name}_ms {share}"]
        for name in ("ttft", "tpot", "latency")
        for share in ("p50", "p99")
    }
    return Accuracy(**found, requests=requests)


def print_validation(found: Validation) -> None:
    """Print the prediction, the measurement, and the error of each figure."""
    table = Table("", "predicted", "measured", "error, %", "engine's own spread, %")
    for each in found.figures:
        error, spread = (
            ("" if share is None else f"{100 * share:{sign}.1f}")
            for share, sign in ((each.error, "+"), (each.spread, ""))
        )
        table.add_row(each.figure, f"{each.predicted:,.2f}", f"{each.measured:,.2f}", error, spread)
    console = Console()
    console.print(table)
    runs = f"{found.runs} run" + "s" * (found.runs != 1)
    console.print(f"{found.requests} requests, {runs} of the engine; {found.failed} requests failed")
