from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator

import openai
import pytest

from enginehouse.testing.engines import SimEngine


class FakeClock:
    """A clock that only ``advance`` moves."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, id(woken), woken))
        await woken

    def stall(self, seconds: float) -> None:
        """Let ``seconds`` pass in which nobody gets a turn."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, waking every sleeper at its own time."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end + 1e-9:
            due, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = max(self._now, end)


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def fast_engine() -> Iterator[SimEngine]:
    """An engine that answers at once."""
    with SimEngine("tiny", "tiny-too", context_length=200, vision=True, tools=False) as engine:
        yield engine


@pytest.fixture(scope="session")
def stuck_engine() -> Iterator[SimEngine]:
    """An engine that takes hours for a long answer; two run at once."""
    with SimEngine("tiny", tpot="100ms", concurrency=2, context_length=200_000) as engine:
        yield engine


@pytest.fixture
def engine(fast_engine: SimEngine) -> Iterator[SimEngine]:
    """The fast engine, with nothing left over from another test."""
    fast_engine.clear()
    yield fast_engine
    fast_engine.clear()


@pytest.fixture
def client(engine: SimEngine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="client-key", max_retries=0) as client:
        yield client


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Asks a real process again and again; each time costs it a request."""
    return lambda condition: any(condition() for _ in range(2000))
