"""Engines that hang are told from engines that compute, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from enginehouse.rescheduling import RequestView
from enginehouse.runtime import Clock
from enginehouse_hung.service import HUNG, Hung, SeenRequest, Silences
from enginehouse_kit.fake_service_gateway import FakeGatewayRequest, FakeServiceGateway
from tests.support.backend_status import backend_status
from tests.support.fake_clock import FakeClock

HUNG_S = 60.0


def seen(pieces: int, *, stream: bool = True, prompt: int = 100, key: str = "r") -> SeenRequest:
    return SeenRequest(key, pieces, stream, prompt)


def test_a_stream_that_stops_is_silent_for_too_long() -> None:
    silences = Silences()
    for second in range(3):
        silences.look(second, [seen(second)])
    assert silences.too_long(61.9, HUNG_S) is None
    assert silences.too_long(62, HUNG_S) == 60


def test_no_silence_is_too_long_while_another_request_gets_pieces() -> None:
    silences = Silences()
    for second in range(100):
        silences.look(second, [seen(1), seen(second, key="other")])
    assert silences.too_long(100, HUNG_S) is None


def test_a_slow_engine_may_take_its_usual_time_five_times() -> None:
    silences = Silences()
    for number in range(4):
        silences.look(100 * number, [seen(number + 1)])  # 100 seconds between two pieces
    assert silences.too_long(799, HUNG_S) is None
    assert silences.too_long(800, HUNG_S) == 500


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (seen(0, prompt=100_000), 2000),  # 50 tokens a second
        (seen(0, prompt=10), HUNG_S),
        (seen(0, stream=False, prompt=100), 411.6),  # 4,096 tokens, 10 a second
    ],
)
def test_an_unknown_engine_is_taken_for_a_slow_one(asked: SeenRequest, allowed: float) -> None:
    silences = Silences()
    silences.look(0, [asked])
    assert silences.too_long(allowed - 0.1, HUNG_S) is None
    assert silences.too_long(allowed, HUNG_S) == allowed


def test_reading_is_measured_by_the_prompt() -> None:
    silences = Silences()
    for number in range(3):
        silences.look(100 * number, [seen(0, prompt=1000, key=str(number))])
        silences.look(100 * number + 10, [seen(1, prompt=1000, key=str(number))])
    silences.look(1000, [seen(0, prompt=4000, key="long")])
    assert silences.too_long(1199, HUNG_S) is None  # 5 * 40 s
    assert silences.too_long(1200, HUNG_S) == 200


def test_an_engine_without_requests_and_one_that_has_just_served_do_not_hang() -> None:
    silences = Silences()
    assert silences.too_long(1000, HUNG_S) is None
    silences.look(0, [seen(1)])
    silences.forgive(100)
    assert silences.too_long(159, HUNG_S) is None


def test_another_attempt_begins_another_silence() -> None:
    silences = Silences()
    silences.look(0, [seen(9)])
    silences.look(50, [seen(0, prompt=10)])
    assert silences.too_long(109, HUNG_S) is None


class SlowEngines(FakeServiceGateway):
    """Engines that answer the question for one token when ``answer`` is set."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=Clock(clock.now))
        self.answered: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self.statuses = [backend_status(name="a"), backend_status(name="b")]

        async def serves(name: str, model: str, within: float) -> bool | None:
            return await self.answered

        self.backends.serves = serves  # type: ignore[method-assign]

    async def look(self) -> None:
        (_, look), _ = self.calls
        made: Awaitable[None] | None = look()
        assert made is None
        for _ in range(5):
            await asyncio.sleep(0)


Play = Callable[[SlowEngines, Hung, FakeClock], Awaitable[None]]


def play(steps: Play) -> None:
    async def whole() -> None:
        clock = FakeClock()
        gateway, service = SlowEngines(clock), Hung()
        gateway.live = [FakeGatewayRequest(id="r", backend="a", pieces=3, seen=RequestView(id="r"))]
        service.prepare(gateway)
        service.start(gateway)
        await gateway.look()
        clock.stall(HUNG_S)
        await gateway.look()
        await steps(gateway, service, clock)
        service.stop()
        gateway.close()

    asyncio.run(whole())


def test_an_engine_that_does_not_serve_is_given_up() -> None:
    async def steps(gateway: SlowEngines, service: Hung, clock: FakeClock) -> None:
        gateway.answered.set_result(False)
        await gateway.look()
        assert "none of its requests got anything" in gateway.given_up["a"]
        assert service.measure() == {HUNG: [(("a",), 1), (("b",), 0)]}

    play(steps)


@pytest.mark.parametrize("answer", [True, None])
def test_an_engine_that_serves_or_cannot_be_asked_is_left_alone(answer: bool | None) -> None:
    async def steps(gateway: SlowEngines, service: Hung, clock: FakeClock) -> None:
        gateway.answered.set_result(answer)
        await gateway.look()
        clock.stall(HUNG_S - 1)
        await gateway.look()
        assert gateway.given_up == {}

    play(steps)


def test_a_piece_that_comes_while_it_is_asked_saves_it() -> None:
    async def steps(gateway: SlowEngines, service: Hung, clock: FakeClock) -> None:
        gateway.live = [msgspec.structs.replace(each, pieces=4) for each in gateway.live]  # type: ignore[type-var]
        await gateway.look()
        gateway.answered.set_result(False)
        await gateway.look()
        assert gateway.given_up == {}

    play(steps)


def test_nothing_is_asked_where_it_is_off() -> None:
    async def steps(gateway: SlowEngines, service: Hung, clock: FakeClock) -> None:
        gateway.answered.set_result(False)
        assert gateway.given_up == {}

    async def whole() -> None:
        clock = FakeClock()
        gateway, service = SlowEngines(clock), Hung()
        gateway.tables["checks"] = msgspec.structs.replace(gateway.table("checks"), hung=0)
        gateway.live = [FakeGatewayRequest(id="r", backend="a", pieces=3)]
        service.prepare(gateway)
        service.start(gateway)
        await gateway.look()
        clock.stall(1000)
        await gateway.look()
        await steps(gateway, service, clock)
        gateway.close()

    asyncio.run(whole())
