"""Makes the view of the cluster: engines' figures, the gateway's own account, and labels of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from enginehouse import Health, ReplicaState, Role
from enginehouse.backends import BackendStatus
from enginehouse.rescheduling import InstanceAddress, InstanceReport, InstanceStatus, RequestView
from enginehouse.services import ServiceGateway
from enginehouse_kit.rescheduling import ClusterView, InFlight, InstanceView
from enginehouse_rescheduling.metrics import Circumstances, all_prefills_tokens_num, decode_batch_size
from enginehouse_rescheduling.placed_requests import LiveFigures, PlacedRequests, in_flight, waiting_at

_SLICE = 50
"""Instances between two turns of the event loop: about 1 ms of work."""
_READING_S = 0.001
"""The time between two turns while streams are read. Streams are not counted, because their lengths differ widely."""


class Cluster:
    """Makes views. An instance is a backend whose engine reports figures."""

    def __init__(self, gateway: ServiceGateway, live: PlacedRequests) -> None:
        self._gateway = gateway
        self._live = live
        self._reserved = NONE_RESERVED

    async def view(self, reads_streams: Callable[[InstanceView], bool]) -> ClusterView:
        """The cluster now. Other work of the event loop is done meanwhile.

        ``reads_streams``: whether the streams of an instance are read, for the tokens of its requests.
        """
        gateway, live = self._gateway, await self._live.by_instance()
        await asyncio.sleep(0)
        clock, reports = gateway.clock, gateway.figures.reports
        now, now_ms = clock.now(), clock.epoch_ms()
        instances: list[InstanceView] = []
        for place, backend in enumerate(gateway.backends, start=1):
            if (report := reports.get(backend.name)) is not None:
                figures = live.get(backend.name, ())
                instance = instance_view(backend, report, figures, now)
                instances.append(
                    await _with_streams(instance, figures, clock.now) if reads_streams(instance) else instance
                )
            if place % _SLICE == 0:
                await asyncio.sleep(0)
        if gateway.table("rescheduling").adaptive_pd:
            self._reserved = reserve(instances, self._reserved)
            instances = [self._reserved.mark(each) for each in instances]
        return ClusterView(now_ms=now_ms, instances=tuple(instances))


def instance_view(
    backend: BackendStatus, report: InstanceReport, live: Sequence[LiveFigures], now: float
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
        node=backend.node or metadata.node_id,
        unit=backend.unit or metadata.unit_id,
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


class Reservations(NamedTuple):
    """The ids of both instances; empty for none."""

    prefill: str = ""
    decode: str = ""

    def mark(self, instance: InstanceView) -> InstanceView:
        """The instance with its reservation."""
        role = {self.prefill: Role.PREFILL, self.decode: Role.DECODE}.get(instance.id)
        return msgspec.structs.replace(instance, reserved=role)


NONE_RESERVED = Reservations()


def reserve(instances: Sequence[InstanceView], before: Reservations) -> Reservations:
    """Keep the reservations of instances that still exist, and choose others for those that do not.

    For decode, the instance with the fewest tokens of prompts to compute; for prefill, of the others the one with the
    fewest decodes. As in Llumnix, only engines' own figures count, and one that fails keeps its reservation. Equal
    instances are in the order of their ids.
    """
    known = {each.id for each in instances}
    decode = before.decode if before.decode in known else ""
    prefill = before.prefill if before.prefill in known else ""
    if not decode:
        decode = _least(all_prefills_tokens_num, [each for each in instances if each.id != prefill])
    if not prefill:
        prefill = _least(decode_batch_size, [each for each in instances if each.id != decode])
    return Reservations(prefill, decode)


def _least(figure: Callable[[InstanceView, Circumstances], int], instances: Sequence[InstanceView]) -> str:
    """The id of the instance with the least of a figure, without what the gateway knows beyond the engine's own."""
    reported = (msgspec.structs.replace(each, inflight=InFlight()) for each in instances)
    return min(((figure(each, Circumstances(0)), each.id) for each in reported), default=(0, ""))[1]
