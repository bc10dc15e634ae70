from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enginehouse import Observer, RequestRecord, Requirements, Route
from enginehouse.tickets import SwapDone
from enginehouse_kit.testing import check_observer


class Late(Observer):
    async def queue_changed(self) -> None:  # type: ignore[override]
        """Never awaited."""


class Raises(Observer):
    def swap_done(self, done: SwapDone) -> None:
        assert done.error is None, "only good news"


class Writes(Observer):
    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        requirements.extra["seen"] = True


class Returns(Observer):
    def replicas_changed(self) -> Any:
        return 1


class Expects(Observer):
    def finished(self, record: RequestRecord) -> None:
        record.attempts[0].replica.index("@")


class Fails(Observer):
    def start(self) -> None:
        raise ValueError("no file")


class StopsLate(Observer):
    async def stop(self) -> None:
        raise ValueError("lost")


class Queues(Observer):
    """Its queue is made by ``start``, and empty after ``stop``."""

    queue: asyncio.Queue[str]

    async def start(self) -> None:
        self.queue = asyncio.Queue()
        await asyncio.Event().wait()

    def finished(self, record: RequestRecord) -> None:
        self.queue.put_nowait(record.id)

    async def stop(self) -> None:
        assert not self.queue.empty()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (Late, AssertionError, "queue_changed must return nothing, got <coroutine"),
        (Raises, AssertionError, "only good news"),
        (Writes, AssertionError, "routed must not change its arguments"),
        (Returns, AssertionError, "replicas_changed must return nothing, got 1"),
        (Fails, ValueError, "no file"),
        (StopsLate, ValueError, "lost"),
        (Expects, IndexError, "tuple index out of range"),
    ],
)
def test_an_observer_that_breaks_a_rule_is_caught(broken: type[Observer], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        check_observer(broken)


def test_an_observer_that_keeps_the_rules_passes() -> None:
    check_observer(Observer)
    check_observer(Queues)
