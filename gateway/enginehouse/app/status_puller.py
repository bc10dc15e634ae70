"""Asks the running engines for the figures of their load, in the background, and shows them to routing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

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


class StatusPuller:
    """The ``EngineFigures`` of services. Routing sees the reports, too.

    ``context``: the hosts' view of the configuration in force. ``publish``: as in ``EngineFigures``.
    A question to a slow engine delays no other one, and no engine is asked twice at once.
    """

    def __init__(self, context: Callable[[], HostContext], publish: Callable[[object], None]) -> None:
        self._context = context
        self.publish = publish
        self.reports: dict[str, InstanceReport] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        self._tasks = BackgroundTasks()
        self._interval = 1.0  # as often as routing needs, which counts its own requests at once

    def start(self) -> None:
        """Ask all engines regularly."""
        self._tasks.start(self._run())

    def stop(self) -> None:
        self._tasks.cancel()

    def every(self, seconds: float) -> None:
        self._interval = seconds

    async def ask(self) -> None:
        self._ask_all()
        if self._asked:
            await asyncio.wait(self._asked.values())

    async def _run(self) -> None:
        while True:
            self._ask_all()
            await asyncio.sleep(self._interval)

    def _ask_all(self) -> None:
        context = self._context()
        backends = context.fleet.backends()
        running = {each.name: each.driver for each in backends if each.state is ReplicaState.READY}
        for known in (self.reports, self._problems):
            for name in known.keys() - running.keys():
                del known[name]
        for name, driver in running.items():
            if name not in self._asked:
                client = Client(context.upstreams[name], _TIMEOUT_S)
                self._asked[name] = self._tasks.start(self._ask(name, context.drivers[driver].figures, client))

    async def _ask(self, name: str, figures: SupportsFigures, client: EngineClient) -> None:
        try:
            report = await run_within(_TIMEOUT_S, self._report(name, figures, client))
            if report is not None:
                self._show(name, report)
        except Exception as error:
            self._note(name, str(error) or repr(error))
        else:
            self._note(name, "")
            if report is None:
                self.reports.pop(name, None)
            else:
                self.reports[name] = report
        finally:
            self._asked.pop(name, None)

    async def _report(self, name: str, figures: SupportsFigures, client: EngineClient) -> InstanceReport | None:
        clock = self._context().outside.clock
        asked_at = clock.now()
        status = await figures.status(client)
        if status is None:
            return None
        before = self.reports.get(name)
        is_same = before is not None and name not in self._problems
        metadata = before.metadata if before and is_same else await figures.metadata(client)
        status = msgspec.structs.replace(status, instance_id=name, timestamp_ms=clock.epoch_ms())
        return InstanceReport(status, metadata, asked_at)

    def _show(self, name: str, report: InstanceReport) -> None:
        """Show routing what the engine of the backend ``name`` reported."""
        status = report.status
        with suppress(NotFound):  # a reload has just removed it
            total = status.num_total_gpu_tokens
            usage = status.num_used_gpu_tokens / total if total else 0.0
            load = self._context().fleet.load(name)
            load.report(status.num_waiting_requests, usage, total, report.asked_at)
            load.report_adapters(status.active_loras, status.max_loras)

    def _note(self, name: str, problem: str) -> None:
        """Log a problem once, not every time. After one, the metadata is asked for again: the engine may be another."""
        if problem and problem != self._problems.get(name):
            _log.warning("Backend %s does not report its figures: %s", name, problem)
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)
