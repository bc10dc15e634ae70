"""Makes the view of the cluster: engines' figures, the gateway's own account, and labels of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.config.schema import HostSettings
from enginehouse.domain.instance import ClusterView, InstanceAddress, InstanceStatus, InstanceView, RequestView
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import InstanceReport, Reports
from enginehouse.fleet.backend_info import BackendStatus
from enginehouse.rescheduling.live_figures import LiveFigures, PlacedRequests, in_flight, waiting_at
from enginehouse.rescheduling.reservations import NONE_RESERVED, reserve

_SLICE = 50
"""Instances between two turns of the event loop: about 1 ms of work."""
_READING_S = 0.001
"""The time between two turns while streams are read. Streams are not counted, because their lengths differ widely."""


class Cluster:
    """Makes views. An instance is a backend whose engine reports figures."""

    def __init__(
        self,
        context: Callable[[], HostContext],
        live: PlacedRequests,
        reports: Reports,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._context = context
        self._live = live
        self._reports = reports
        self._reserved = NONE_RESERVED

    async def view(self, reads_streams: Callable[[InstanceView], bool]) -> ClusterView:
        """The cluster now. Other work of the event loop is done meanwhile.

        ``reads_streams``: whether the streams of an instance are read, for the tokens of its requests.
        """
        live, context = await self._live.by_instance(), self._context()
        await asyncio.sleep(0)
        now, now_ms = self._clock.now(), self._clock.epoch_ms()
        instances: list[InstanceView] = []
        for place, backend in enumerate(context.fleet.backends(), start=1):
            if (report := self._reports.get(backend.name)) is not None:
                host = context.config.host_settings(backend.host)
                figures = live.get(backend.name, ())
                instance = instance_view(backend, host, report, figures, now)
                instances.append(
                    await _with_streams(instance, figures, self._clock.now) if reads_streams(instance) else instance
                )
            if place % _SLICE == 0:
                await asyncio.sleep(0)
        if context.config.rescheduling.adaptive_pd:
            self._reserved = reserve(instances, self._reserved)
            instances = [self._reserved.mark(each) for each in instances]
        return ClusterView(now_ms=now_ms, instances=tuple(instances))


def instance_view(
    backend: BackendStatus, host: HostSettings, report: InstanceReport, live: Sequence[LiveFigures], now: float
) -> InstanceView:
    """One instance. It is schedulable if its engine says so and the gateway sends requests there."""
    status, metadata = report.status, report.metadata
    takes_requests = (
        status.schedulable
        and backend.health is Health.HEALTHY
        and backend.state is ReplicaState.READY
        and not backend.draining
    )
    return InstanceView(
        id=backend.name,
        node=backend.node or host.node or metadata.node_id,
        unit=backend.unit or host.unit or metadata.unit_id,
        zone=backend.zone,
        role=backend.role,
        models=backend.models,
        data_parallel_size=metadata.data_parallel_size,
        block_size=metadata.block_size,
        max_num_batched_tokens=metadata.max_num_batched_tokens,
        status=msgspec.structs.replace(status, schedulable=takes_requests),
        inflight=in_flight(live, backend.role, status, report.asked_at, now),
        requests=_placed([each.request for each in live], status),
        address=InstanceAddress(ip=metadata.ip, llumlet_port=metadata.llumlet_port, kvt_port=metadata.kvt_port),
    )


async def _with_streams(instance: InstanceView, live: Sequence[LiveFigures], now: Callable[[], float]) -> InstanceView:
    """The instance with the figures from the streams of its requests."""
    requests: list[RequestView] = []
    began = now()
    for each in live:
        requests.append(each.read())
        if now() - began > _READING_S:
            await asyncio.sleep(0)
            began = now()
    return msgspec.structs.replace(instance, requests=_placed(requests, instance.status))


def _placed(requests: Sequence[RequestView], status: InstanceStatus) -> tuple[RequestView, ...]:
    """The requests, with those marked as waiting that wait at the engine."""
    waiting = waiting_at(status)
    if not waiting:
        return tuple(requests)
    return tuple(msgspec.structs.replace(each, running=False) if each.id in waiting else each for each in requests)
