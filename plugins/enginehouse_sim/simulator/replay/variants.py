"""Replays of one kind of traffic under several configurations, side by side, on all cores."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import accumulate, pairwise, product
from pathlib import Path
from time import perf_counter

import msgspec

from enginehouse import ConfigError, EnginehouseError
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.build import build_core, outside_costs
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.played_engine import Replay
from enginehouse_sim.simulator.replay.report import Report, Slo, VariantReport, report
from enginehouse_sim.simulator.replay.traces.reader import Trace, TraceRequest
from enginehouse_sim.simulator.replay.traces.workload import Workload

OnProgress = Callable[[float], None]
"""Gets the share of the requests that have been read, 0 to 1."""
_TOLD_EVERY = 256


def _watched(
    requests: Iterable[TraceRequest], share: Callable[[int], float], on_progress: OnProgress
) -> Iterator[TraceRequest]:
    """Yield the requests, and tell the ``share`` that so many of them are, from time to time, and 1 at the end."""
    for number, request in enumerate(requests, 1):
        yield request
        if number % _TOLD_EVERY == 0:
            on_progress(share(number))
    on_progress(1.0)


class TraceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to read: at most ``limit`` requests, by default all. By default, the fields decide the ``format``.

    ``shuffle``: 0 for the trace as it is; else the seed by which the gaps between its arrivals change places.
    """

    path: Path
    limit: int | None = None
    format: str | None = None
    shuffle: int = 0

    def open(self) -> Trace:
        return Trace(self.path, self.limit, self.format or "")

    def requests(self, on_progress: OnProgress) -> Iterator[TraceRequest]:
        """Read the requests. Raises ``TraceError``."""
        trace = self.open()
        most = self.limit or math.inf
        requests = _watched(trace, lambda number: max(trace.share_read, number / most), on_progress)
        return iter(_shuffled(list(requests), self.shuffle)) if self.shuffle else requests


class MadeUpTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """``number`` requests of a workload."""

    workload: Workload
    number: int

    def requests(self, on_progress: OnProgress) -> Iterator[TraceRequest]:
        """Make the requests. Raises ``ConfigError``."""
        return _watched(self.workload.requests(self.number), lambda made: made / self.number, on_progress)


Traffic = TraceFile | MadeUpTraffic


def reseeded(traffic: Traffic, seed: int) -> Traffic:
    """The same kind of traffic by another seed. Traffic by seed 0 is ``traffic`` itself."""
    if not seed:
        return traffic
    if isinstance(traffic, TraceFile):
        return msgspec.structs.replace(traffic, shuffle=seed)
    workload = msgspec.structs.replace(traffic.workload, seed=traffic.workload.seed + seed)
    return msgspec.structs.replace(traffic, workload=workload)


def _shuffled(requests: list[TraceRequest], seed: int) -> list[TraceRequest]:
    """The same requests in the same order, after gaps in another order."""
    gaps = [later.arrival - sooner.arrival for sooner, later in pairwise(requests)]
    random.Random(seed).shuffle(gaps)
    arrivals = accumulate(gaps, initial=0.0)
    return [msgspec.structs.replace(request, arrival=at) for request, at in zip(requests, arrivals, strict=True)]


class Variant(msgspec.Struct, frozen=True):
    """One configuration to replay, and its traffic."""

    name: str
    setting: Setting
    traffic: Traffic


def choice_of(text: str) -> tuple[str, list[str]]:
    """Read ``routing.strategy=smart,random`` as a key and its values.

    Commas in brackets or quotes do not separate values.

    Raises ``ConfigError``.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values:
        raise ConfigError(
            f"{text!r} is not a choice", key="--set", remedy="write KEY=A,B: routing.strategy=smart,random"
        )
    found, depth, quoted = [""], 0, ""
    for character in values:
        if character in "\"'" and quoted in ("", character):
            quoted = "" if quoted else character
        elif not quoted:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += character
    return key.strip(), [value.strip() for value in found]


def variants_of(traffic: Traffic, setting: Setting, choices: Sequence[tuple[str, Sequence[str]]]) -> list[Variant]:
    """The product of all ``choices``: keys of the configuration, each with the values to try."""
    keys = [key for key, _ in choices]
    made = []
    for values in product(*(values for _, values in choices)):
        pairs = tuple(zip(keys, values, strict=True))
        gateway = msgspec.structs.replace(setting.gateway, values=pairs)
        name = ", ".join(f"{key}={value}" for key, value in pairs) or "as configured"
        made.append(Variant(name, msgspec.structs.replace(setting, gateway=gateway), traffic))
    return made


def replayed_alone(
    trace: TraceFile, core: CoreSettings, slo: Slo | None, on_progress: Callable[[float], None]
) -> Report:
    """Replay a trace on one engine, without a gateway. Raises ``EnginehouseError``."""
    began = perf_counter()
    record = Replay(trace.requests(on_progress), build_core(core, makes_text=False), slo, outside_costs(core)).run()
    record.real_seconds = perf_counter() - began
    return report(record)


def run_variants(
    variants: Sequence[Variant], on_progress: Callable[[float], None], jobs: int | None = None
) -> list[VariantReport]:
    """Replay every variant, each in a process of its own if there are several and ``jobs`` is not 1.

    ``on_progress`` gets the share of the work that is done, 0 to 1. ``jobs``: the most processes at once, by default
    one for each core. Raises ``EnginehouseError``.
    """
    for variant in variants:
        variant.setting.gateway.load()  # so that an error is reported before the first replay
    if len(variants) == 1 or jobs == 1:
        reports = []
        for number, variant in enumerate(variants):

            def note(share: float, done: int = number) -> None:
                on_progress((done + share) / len(variants))

            reports.append(_replay(variant, note))
        return reports
    workers = min(len(variants), jobs or os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        submitted = [pool.submit(_replay_apart, variant) for variant in variants]
        for number, _ in enumerate(as_completed(submitted), 1):
            on_progress(number / len(variants))
        return [_report_of(job.result()) for job in submitted]


def _report_of(result: VariantReport | str) -> VariantReport:
    if isinstance(result, str):
        raise EnginehouseError(result)
    return result


def _replay_apart(variant: Variant) -> VariantReport | str:
    """Replay in a worker process. An error comes back as its message, because not every error can be pickled."""
    try:
        return _replay(variant, _ignore)
    except EnginehouseError as error:
        return str(error)


def _replay(variant: Variant, on_progress: Callable[[float], None]) -> VariantReport:
    with _no_log():
        record = GatewayReplay(variant.traffic.requests(on_progress), variant.setting).run()
    return VariantReport(name=variant.name, **msgspec.structs.asdict(report(record)))


def _ignore(share: float) -> None:
    """The progress of a single variant among several."""


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep the warnings of a replay's gateway off standard error, unless logging is set up: the report counts them."""
    log, handler = logging.getLogger("enginehouse"), logging.NullHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
