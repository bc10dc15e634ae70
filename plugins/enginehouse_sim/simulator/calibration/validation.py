"""Compares a replay with the engine itself, under the same requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from time import perf_counter

import msgspec

from enginehouse import GatewayError
from enginehouse_sim.simulator.calibration.facts import body_for
from enginehouse_sim.simulator.calibration.measured import MeasuredRun
from enginehouse_sim.simulator.calibration.probes import prompt_tokens
from enginehouse_sim.simulator.calibration.streams import EngineAddress, stream
from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord
from enginehouse_sim.simulator.replay.figures.gaps import count_gap
from enginehouse_sim.simulator.replay.figures.record import Record
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest
from enginehouse_sim.simulator.steps.profile import Accuracy


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
    address: EngineAddress,
    requests: Sequence[TraceRequest],
    runs: int,
    on_progress: Callable[[float], None],
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
