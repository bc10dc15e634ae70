"""The conformance check of services: from their start to their stop, beside an idle gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse import Service
from enginehouse.services import MetricInfo
from enginehouse_kit.expect import expect, expect_status, within
from enginehouse_kit.fake_service_gateway import FakeServiceGateway

_START_S, _STOP_S = 10.0, 5.0


def check_service(factory: Callable[[], Service]) -> None:
    """Check a service against the rules of its interface. Call it in a synchronous test.

    ``prepare`` must start nothing, and ``start``, what it calls regularly, and ``stop`` must return in time. After
    ``stop``, no task may run. ``status`` must be for JSON, and ``measure`` have declared metrics only.
    """
    with TemporaryDirectory() as folder:
        asyncio.run(_check(factory, Path(folder) / "state"))


async def _check(factory: Callable[[], Service], folder: Path) -> None:
    unused = FakeServiceGateway(folder)
    factory().prepare(unused)
    expect(not unused.calls and not unused.routes, "prepare must start nothing: a check prepares, too")
    await asyncio.sleep(0)
    expect(not _tasks(), "prepare must start no task: a check prepares, too")

    gateway, it = FakeServiceGateway(folder), factory()
    it.prepare(gateway)
    await within(_START_S, "start", it.start(gateway))
    for _, call in gateway.calls:
        await within(_START_S, "what is called regularly", call())
    it.reconfigure(gateway)
    _look(it)
    gateway.close()
    await within(_STOP_S, "stop", it.stop())
    await asyncio.sleep(0)
    expect(not _tasks(), f"no task may run after stop, got {_tasks()}")


def _look(it: Service) -> None:
    expect_status(it.status())
    for metric, series in it.measure().items():
        expect(isinstance(metric, MetricInfo), f"measure must have MetricInfo as keys, got {metric!r}")
        expect(metric in it.metrics, f"'{metric.name}' must be among the metrics of the class")
        for labels, value in series:
            expect(len(labels) == len(metric.labels), f"'{metric.name}' needs the labels {metric.labels}, got {labels}")
            float(value)


def _tasks() -> list[str]:
    return [str(each) for each in asyncio.all_tasks() if each is not asyncio.current_task()]
