"""Asks the running engines for the figures of their load, in the background, and shows them to routing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import NotFound
from enginehouse.domain.instance import InstanceReport
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.host_context import HostContext
from enginehouse.interfaces.drivers import EngineClient, SupportsFigures
from enginehouse.relay.upstream.client import Client

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class EngineToAsk(NamedTuple):
    """An engine that runs, by its backend's name."""

    name: str
    driver: SupportsFigures
    client: EngineClient


class StatusPuller:
    """Keeps the figures of every engine that runs and reports any. ``reports``: by backend; ``on_report`` gets each.

    ``interval``: the seconds between two questions; by default as often as routing needs, which counts its own requests
    at once.
    A question to a slow engine delays no other one, and no engine is asked twice at once.
    """

    def __init__(
        self,
        engines: Callable[[], Iterable[EngineToAsk]],
        clock: Clock = SYSTEM_CLOCK,
        on_report: Callable[[str, InstanceReport], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_report = on_report
        self.reports: dict[str, InstanceReport] = {}
        self._engines = engines
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        self._tasks = BackgroundTasks()
        self.interval = 1.0

    def start(self) -> None:
        """Ask all engines every ``interval`` seconds."""
        self._tasks.start(self._run())

    def stop(self) -> None:
        self._tasks.cancel()

    async def pull(self) -> None:
        """Ask all engines once and wait for their answers, at most 5 seconds."""
        self._ask_all()
        if self._asked:
            await asyncio.wait(self._asked.values())

    async def _run(self) -> None:
        while True:
            self._ask_all()
            await asyncio.sleep(self.interval)

    def _ask_all(self) -> None:
        engines = {engine.name: engine for engine in self._engines()}
        for known in (self.reports, self._problems):
            for name in known.keys() - engines.keys():
                del known[name]
        for name, engine in engines.items():
            if name not in self._asked:
                self._asked[name] = self._tasks.start(self._ask(engine))

    async def _ask(self, engine: EngineToAsk) -> None:
        try:
            report = await run_within(_TIMEOUT_S, self._report(engine))
        except Exception as error:
            self._note(engine.name, str(error) or repr(error))
        else:
            self._note(engine.name, "")
            if report is None:
                self.reports.pop(engine.name, None)
            else:
                self.reports[engine.name] = report
                if self._on_report is not None:
                    self._on_report(engine.name, report)
        finally:
            self._asked.pop(engine.name, None)

    async def _report(self, engine: EngineToAsk) -> InstanceReport | None:
        name, asked_at = engine.name, self._clock.now()
        status = await engine.driver.status(engine.client)
        if status is None:
            return None
        before = self.reports.get(name)
        is_same = before is not None and name not in self._problems
        metadata = before.metadata if before and is_same else await engine.driver.metadata(engine.client)
        status = msgspec.structs.replace(status, instance_id=name, timestamp_ms=self._clock.epoch_ms())
        return InstanceReport(status, metadata, asked_at)

    def _note(self, name: str, problem: str) -> None:
        """Log a problem once, not every time. After one, the metadata is asked for again: the engine may be another."""
        if problem and problem != self._problems.get(name):
            _log.warning("Backend %s does not report its figures: %s", name, problem)
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)


def build_puller(context: Callable[[], HostContext]) -> StatusPuller:
    """What asks the engines of the configuration in force, which ``context`` has."""
    return StatusPuller(partial(_running_engines, context), context().outside.clock, partial(_note_figures, context))


def _running_engines(context: Callable[[], HostContext]) -> Iterator[EngineToAsk]:
    now = context()
    for backend in now.fleet.backends():
        if backend.state is ReplicaState.READY:
            client = Client(now.upstreams[backend.name], _TIMEOUT_S)
            yield EngineToAsk(backend.name, now.drivers[backend.driver].figures, client)


def _note_figures(context: Callable[[], HostContext], name: str, report: InstanceReport) -> None:
    """Show routing what the engine of the backend ``name`` reported."""
    status = report.status
    with suppress(NotFound):  # a reload has just removed it
        total = status.num_total_gpu_tokens
        usage = status.num_used_gpu_tokens / total if total else 0.0
        load = context().fleet.load(name)
        load.report(status.num_waiting_requests, usage, total, report.asked_at)
        load.report_adapters(status.active_loras, status.max_loras)
