"""Asks the running engines for the figures of their load, and shows them to routing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from enginehouse.app.services.status_puller import EngineToAsk, StatusPuller
from enginehouse.domain.errors import NotFound
from enginehouse.domain.instance import InstanceReport
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.host_context import HostContext
from enginehouse.relay.upstream.client import Client

_TIMEOUT_S = 5.0


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
