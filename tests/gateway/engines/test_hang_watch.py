"""Engines that hang, and engines that compute something long."""

from __future__ import annotations

import pytest

from enginehouse.config.schema import CheckSettings
from enginehouse.engines.probing.hang_watch import HangWatch


class Engine:
    """Takes ``share`` of a processor; ``None``: nobody knows."""

    def __init__(self, share: float | None, in_flight: int = 0, hung: float = 60, failures: int = 3) -> None:
        self.share = share
        self.now = 0.0
        self.used = 7.0
        self.ends: list[str] = []
        checks = CheckSettings(hung=hung, failures=failures)
        self.watch = HangWatch(checks, self._processor_s, lambda: in_flight, self._end)

    async def _processor_s(self) -> float | None:
        if self.share is None:
            raise LookupError
        return self.used

    async def _end(self, why: str) -> None:
        self.ends.append(why)

    async def late(self, probes: int) -> None:
        for _ in range(probes):
            if not self.ends:
                await self.watch.late(self.now)
                self.now += 10
                self.used += 10 * (self.share or 0)


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
        engine.watch.answered()
    assert engine.ends == []


async def test_it_can_be_switched_off() -> None:
    engine = Engine(0.0, hung=0)
    await engine.late(100)
    assert engine.ends == []
