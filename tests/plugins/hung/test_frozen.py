"""Engines that hang, and engines that compute something long."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from enginehouse.runtime import Clock
from enginehouse_hung.service import FrozenEngines
from enginehouse_kit.fake_service_gateway import FakeServiceGateway
from tests.support.backend_status import backend_status
from tests.support.fake_clock import FakeClock


class Engine:
    """Takes ``share`` of a processor; ``None``: nobody knows."""

    def __init__(self, share: float | None, in_flight: int = 0, hung: float = 60, failures: int = 3) -> None:
        self.share = share
        self.ends: list[str] = []
        self.clock = FakeClock()
        self.gateway = FakeServiceGateway(clock=Clock(self.clock.now))
        self.gateway.statuses = [backend_status(name="a", pending=in_flight)]
        checks = self.gateway.table("checks")
        self.gateway.tables["checks"] = msgspec.structs.replace(checks, hung=hung, failures=failures)
        self.frozen = FrozenEngines(self.gateway, self._end)
        self._used = 7.0

    async def _end(self, name: str, why: str) -> None:
        self.ends.append(why)

    async def late(self, probes: int) -> None:
        """So many late probes, every 10 seconds."""
        for _ in range(probes):
            self.gateway.late["a"] = self.gateway.late.get("a", 0) + 1
            if self.share is not None:
                self.gateway.processor_s["a"] = self._used
            for _ in range(10):
                if not self.ends:
                    await self.frozen.look()
                    self.clock.stall(1)
                    self._used += self.share or 0

    async def answered(self) -> None:
        self.gateway.late["a"] = 0
        await self.frozen.look()


@pytest.mark.parametrize("in_flight", [0, 5])
async def test_an_engine_that_computes_nothing_hangs(in_flight: int) -> None:
    engine = Engine(0.0, in_flight)
    await engine.late(3)
    assert engine.ends == []
    await engine.late(1)
    assert engine.ends == ["The engine hung: it answered no health check and computed nothing for 30 s"]


@pytest.mark.parametrize("share", [1.0, None])
async def test_an_engine_that_reads_a_long_prompt_does_not_hang(share: float | None) -> None:
    engine = Engine(share, in_flight=1)
    await engine.late(100)
    assert engine.ends == []


@pytest.mark.parametrize("share", [1.0, None])
async def test_an_engine_that_serves_nobody_and_says_nothing_hangs(share: float | None) -> None:
    engine = Engine(share)
    await engine.late(6)
    assert engine.ends == []
    await engine.late(1)
    assert engine.ends == ["The engine hung: it answered no health check for 60 s and served no request"]


async def test_any_answer_begins_anew() -> None:
    engine = Engine(0.0)
    for _ in range(5):
        await engine.late(3)
        await engine.answered()
    assert engine.ends == []


async def test_probes_that_are_late_again_before_anybody_looks_begin_anew() -> None:
    engine = Engine(0.0)
    for _ in range(5):
        await engine.late(3)
        engine.gateway.late["a"] = 0
    assert engine.ends == []


async def test_probes_that_come_faster_than_looks_count_one_by_one() -> None:
    engine = Engine(0.0)
    engine.gateway.late["a"] = 5
    engine.gateway.processor_s["a"] = 7.0
    await engine.frozen.look()
    assert engine.ends == []
    engine.clock.stall(1)
    engine.gateway.late["a"] = 8
    await engine.frozen.look()
    assert engine.ends == ["The engine hung: it answered no health check and computed nothing for 1 s"]


async def test_a_launcher_that_does_not_answer_says_nothing() -> None:
    engine = Engine(0.0, in_flight=1)
    checks = engine.gateway.tables["checks"]
    engine.gateway.tables["checks"] = msgspec.structs.replace(checks, timeout=0.001)

    async def never(name: str) -> float | None:
        await asyncio.Event().wait()
        return 0.0

    engine.gateway.backends.processor_seconds = never  # type: ignore[method-assign]
    await engine.late(5)
    assert engine.ends == []


async def test_an_engine_that_answers_while_its_launcher_is_asked_is_left_alone() -> None:
    engine = Engine(0.0)
    await engine.late(3)

    async def answers(name: str) -> float | None:
        engine.gateway.late["a"] = 0
        return 7.0

    engine.gateway.backends.processor_seconds = answers  # type: ignore[method-assign]
    engine.gateway.late["a"] = 4
    await engine.frozen.look()
    assert engine.ends == []


async def test_servers_elsewhere_are_not_judged_by_their_probes() -> None:
    engine = Engine(0.0)
    engine.gateway.tables["backends"] = {"a": None}
    await engine.late(100)
    assert engine.ends == []


async def test_it_can_be_switched_off() -> None:
    engine = Engine(0.0, hung=0)
    await engine.late(100)
    assert engine.ends == []
