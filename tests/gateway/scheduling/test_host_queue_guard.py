"""A scheduler that forgets a request, or fails, does not hold it past ``queue_timeout``, and the log names it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import ReplicaState, Scheduler
from enginehouse.domain.errors import PluginError, ShuttingDown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.ticket import Ticket
from enginehouse.errors import PluginFailed
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.observers import Observers
from enginehouse.tickets import HostFacts, SchedulingLimits, Waiting
from enginehouse_kit.testing import OneAtATime
from tests.support.host_queues import FakeEngines, FakeHolder
from tests.support.virtual_time import Run

pytestmark = pytest.mark.usefixtures("every_failure")


class Forgetful(Scheduler):
    """Forgets every request; raises ``error`` from the methods ``failing``."""

    def __init__(self, *failing: str, error: BaseException | None = None) -> None:
        self.failing = failing
        self.error = error or KeyError("secret")
        self.cancelled: list[Ticket] = []

    def prepare(self, effects: Any, swapper: Any, host: Any, limits: Any) -> None:
        self._maybe("prepare")

    def reconfigure(self, swapper: Any, host: Any, limits: Any) -> None: ...

    def on_request(self, ticket: Ticket) -> None:
        self._maybe("on_request")

    def on_swap_done(self, done: Any) -> None: ...

    def on_serve_done(self, replica: str) -> None: ...

    def on_cancel(self, ticket: Ticket) -> None:
        self.cancelled.append(ticket)
        self._maybe("on_cancel")

    def on_unload(self, targets: Sequence[str], timeout: float) -> None: ...

    def on_stopped(self, replica: str) -> None: ...

    def on_tick(self, now: float) -> None:
        self._maybe("on_tick")

    def on_shutdown(self, error: Exception) -> None:
        self._maybe("on_shutdown")

    def waiting(self) -> Sequence[Waiting]:
        self._maybe("waiting")
        return ()

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise self.error


def queue_of(scheduler: Scheduler, queue_timeout: float = 2.0) -> HostQueue:
    engines = FakeEngines({"a": ReplicaState.READY})
    queue = HostQueue("local", scheduler, engines, Observers(), PluginId("scheduler", "lazy", "acme"))
    queue.prepare(OneAtATime(), HostFacts(name="local"), SchedulingLimits(queue_timeout=queue_timeout))
    return queue


def ticket(queue: HostQueue) -> Ticket:
    return Ticket(id="1", replica="a", arrived=queue.now())


@pytest.mark.parametrize("failing", [(), ("on_tick",), ("on_tick", "on_cancel"), ("waiting",)])
def test_a_forgotten_request_ends_with_queue_timeout(
    in_virtual_time: Run, caplog: pytest.LogCaptureFixture, failing: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        scheduler = Forgetful(*failing)
        queue, holder = queue_of(scheduler), FakeHolder()
        asked = ticket(queue)
        queue.submit(asked, holder)
        assert queue.waiting() == ()
        await asyncio.wait([holder.answer])
        assert queue.now() == pytest.approx(3, abs=0.5)
        assert holder.heard == ["'a' was not available within scheduling.queue_timeout (2 s)"]
        assert scheduler.cancelled == [asked]
        assert "The scheduler 'lazy' of plugin 'acme' kept a request past scheduling.queue_timeout" in caplog.text

    in_virtual_time(scenario())


@pytest.mark.parametrize("error", [KeyError("secret"), SystemExit(1), KeyboardInterrupt()])
def test_a_request_that_the_scheduler_fails_on_is_refused(
    in_virtual_time: Run, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def scenario() -> None:
        queue, holder = queue_of(Forgetful("on_request", error=error)), FakeHolder()
        queue.submit(ticket(queue), holder)
        refusal = holder.answer.exception()
        assert isinstance(refusal, PluginFailed)
        assert refusal.message == f"The scheduler 'lazy' of plugin 'acme' failed with {type(error).__name__}"
        assert refusal.details == {"kind": "scheduler", "type": "lazy", "plugin": "acme"}
        assert "Traceback" in caplog.text

    in_virtual_time(scenario())


@pytest.mark.parametrize("failing", [(), ("on_shutdown",)])
def test_a_shutdown_refuses_what_the_scheduler_does_not(in_virtual_time: Run, failing: tuple[str, ...]) -> None:
    async def scenario() -> None:
        queue, holder = queue_of(Forgetful(*failing)), FakeHolder()
        queue.submit(ticket(queue), holder)
        await queue.close(ShuttingDown("bye"))
        assert holder.heard == ["bye"]

    in_virtual_time(scenario())


def test_without_a_queue_timeout_requests_wait_for_ever(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        queue, holder = queue_of(Forgetful(), queue_timeout=0), FakeHolder()
        asked = ticket(queue)
        queue.submit(asked, holder)
        await asyncio.sleep(10_000)
        assert not holder.heard
        queue.cancel(asked)

    in_virtual_time(scenario())


async def test_a_scheduler_that_cannot_be_prepared_is_named() -> None:
    with pytest.raises(PluginError, match="the scheduler 'lazy' cannot be prepared: KeyError"):
        queue_of(Forgetful("prepare"))
