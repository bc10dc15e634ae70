"""Callers share engines, and requests that would wait too long are refused: a whole gateway in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from enginehouse import Body, Driver, InferenceRequest, PluginError
from enginehouse_sim import SimDriver
from enginehouse_sim.simulator.replay.played_connection import HttpRequest, PlayedConnection, PlayedModels
from enginehouse_sim.virtual import VirtualClient, VirtualEngines, VirtualGateway, VirtualProcess, VirtualSettings
from tests.support.plugins import Install
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]

KEYS = """
[[auth.keys]]
name = "crowd"
key = "secret-1"
priority = {crowd}
[[auth.keys]]
name = "single"
key = "secret-2"
weight = {weight}
ttft_objective = "{objective}ms"
"""


class Engines(VirtualEngines):
    """Engines of one slot, or of ``slots``, that take a second for each request, or a time up to ``spread`` from it."""

    def __init__(self, slots: int = 1, spread: float = 0.0) -> None:
        self.slots = slots
        self._spread = spread
        self._chance = random.Random(1)

    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        def serve(transport: PlayedConnection, request: HttpRequest) -> None:
            if (page := PlayedModels(["m"], 4096, self.slots).page(request.path)) is not None:
                transport.answer(200, page)
            elif request.path == "/instance_status":
                transport.answer(404, b"")
            else:
                seconds = 1.0 + self._spread * self._chance.uniform(-1, 1)
                asyncio.get_running_loop().call_later(seconds, transport.answer, 200, b'{"choices":[]}')

        connection.connection_made(PlayedConnection(connection, serve, lambda _: None))

    def driver(self, *, bootstraps: bool) -> Driver:
        return SimDriver()

    async def launch(self, process: VirtualProcess) -> None:
        raise AssertionError("nothing is launched")

    async def stop(self, process: VirtualProcess) -> None:
        raise AssertionError("nothing is launched")


class Client(VirtualClient):
    """``took``: seconds until the end."""

    def __init__(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.took = 0.0
        self.code = "live"

    def answered(self) -> None:
        pass

    def ended(self, status: int, code: str) -> None:
        self.code = code
        self.took = asyncio.get_running_loop().time() - self.began


class House:
    """A gateway in front of ``count`` engines. ``table``: more lines of its configuration."""

    def __init__(
        self, folder: Path, table: str = "", *, crowd: int = 0, weight: float = 1, objective: int = 0, count: int = 2
    ) -> None:
        file = folder / "enginehouse.toml"
        backends = "".join(
            f'[backends.b{number}]\nurl = "http://{number}"\ndriver = "sim"\n' for number in range(count)
        )
        file.write_text(table + backends + KEYS.format(crowd=crowd, weight=weight, objective=objective))
        self._settings = VirtualSettings(file=file)
        self.engines = Engines()
        self.gateway: VirtualGateway

    async def __aenter__(self) -> House:
        self.gateway = self._settings.gateway(self.engines)
        await self.gateway.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.close()

    def send(self, key: str, deadline: bytes = b"") -> Client:
        client = Client()
        headers = [(b"x-enginehouse-deadline", deadline)] if deadline else []
        request = InferenceRequest("/v1/completions", headers, b"", Body(model="m", prompt=[1] * 100))
        self.gateway.submit(request, b'{"model":"m","prompt":[1]}', client, key)
        return client


async def worst_beside_a_crowd(house: House, crowd: int) -> float:
    """The longest time of ten requests of one caller, one after the other, while another has sent ``crowd`` at once."""
    async with house:
        for _ in range(crowd):
            house.send("crowd")
        times: list[float] = []
        for _ in range(10):
            client = house.send("single")
            await asyncio.sleep(5)
            times.append(client.took)
            assert client.code == ""
        return max(times)


@pytest.mark.parametrize("engines", [1, 2])
def test_a_caller_with_many_requests_does_not_hold_up_another_one(
    in_virtual_time: Run, tmp_path: Path, engines: int
) -> None:
    async def scenario() -> None:
        table = '[scheduling]\nscheduler = "fair"\n'
        beside = await worst_beside_a_crowd(House(tmp_path, table, count=engines), 50)
        assert beside <= 2.0  # what runs when it comes is not stopped

    in_virtual_time(scenario())


def test_fifty_requests_at_once_raise_the_longest_time_of_another_caller_by_less_than_half(
    in_virtual_time: Run, tmp_path: Path
) -> None:
    async def longest(crowd: int) -> float:
        house = House(tmp_path, '[scheduling]\nscheduler = "fair"\n', count=2)
        house.engines = Engines(slots=4, spread=0.5)
        times: list[float] = []
        async with house:
            for number in range(50):
                if number % 5 == 0:
                    for _ in range(crowd):
                        house.send("crowd")
                client = house.send("single")
                await asyncio.sleep(3)
                times.append(client.took)
        return max(times)

    async def scenario() -> None:
        assert await longest(crowd=50) <= 1.5 * await longest(crowd=0)

    in_virtual_time(scenario())


def test_without_shares_it_waits_for_all_that_came_before(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with House(tmp_path) as house:
            for _ in range(50):
                house.send("crowd")
            client = house.send("single")
            await asyncio.sleep(60)
            assert client.took == pytest.approx(26, abs=0.1)

    in_virtual_time(scenario())


@pytest.mark.parametrize(("weight", "ratio"), [(1.0, 1.0), (3.0, 3.0)])
def test_callers_get_shares_by_their_weights(in_virtual_time: Run, tmp_path: Path, weight: float, ratio: float) -> None:
    async def scenario() -> None:
        table = '[scheduling]\nscheduler = "fair"\n'
        async with House(tmp_path, table, weight=weight) as house:
            crowd = [house.send("crowd") for _ in range(40)]
            single = [house.send("single") for _ in range(40)]
            await asyncio.sleep(16.5)
            done = [sum(client.code == "" for client in each) for each in (crowd, single)]
            assert sum(done) == 32
            assert done[1] / done[0] == pytest.approx(ratio, rel=0.35)

    in_virtual_time(scenario())


TURNS = """
from enginehouse import hookimpl
from enginehouse.tickets import CallerTurn, CallerTurns
from enginehouse_scheduling.fifo import Fifo

class Turn(CallerTurn):
    def __init__(self, at):
        self.at = at
    def granted(self):
        {granted}
    def ended(self, used):
        raise KeyError(used)

class LastFirst(CallerTurns):
    at = 0.0
    def next(self, caller, weight, prompt, answer_limit):
        self.at -= 1
        return {next}

class Scheduler(Fifo):
    shares = {shares}

@hookimpl
def register_schedulers(register):
    register("last_first", Scheduler)
"""


def turns(granted: str = "pass", next: str = "Turn(self.at)", shares: str = "LastFirst") -> str:
    """A plugin whose scheduler gives later requests earlier turns. The parts of it that may be wrong."""
    return TURNS.format(granted=granted, next=next, shares=shares)


@pytest.mark.parametrize("granted", ["pass", "raise KeyError('a turn')"])
def test_a_scheduler_of_another_plugin_gives_turns_of_its_own(
    in_virtual_time: Run, tmp_path: Path, install: Install, granted: str
) -> None:
    install("last_first", turns(granted))

    async def scenario() -> None:
        async with House(tmp_path, '[scheduling]\nscheduler = "last_first"\n', count=1) as house:
            clients = [house.send("crowd") for _ in range(4)]
            await asyncio.sleep(10)
            assert [round(client.took) for client in clients] == [1, 4, 3, 2]
            assert codes(clients) == [""] * 4

    in_virtual_time(scenario())


@pytest.mark.parametrize("next", ["1 / 0", "None", "Turn('first')", "Turn(float('nan'))"])
def test_a_turn_that_is_none_fails_its_request_alone(
    in_virtual_time: Run, tmp_path: Path, install: Install, next: str
) -> None:
    install("last_first", turns(next=f"Turn(self.at) if caller == 'crowd' else {next}"))

    async def scenario() -> None:
        async with House(tmp_path, '[scheduling]\nscheduler = "last_first"\n', count=1) as house:
            clients = [house.send(caller) for caller in ("crowd", "single", "crowd")]
            await asyncio.sleep(10)
            assert codes(clients) == ["", "plugin_failed", ""]

    in_virtual_time(scenario())


@pytest.mark.parametrize("shares", ["None", "False"])
def test_a_scheduler_may_give_no_turns(in_virtual_time: Run, tmp_path: Path, install: Install, shares: str) -> None:
    install("last_first", turns(shares=shares))

    async def scenario() -> None:
        async with House(tmp_path, '[scheduling]\nscheduler = "last_first"\n', count=1) as house:
            clients = [house.send("crowd") for _ in range(3)]
            await asyncio.sleep(10)
            assert [round(client.took) for client in clients] == [1, 2, 3]

    in_virtual_time(scenario())


def test_a_scheduler_whose_turns_cannot_be_made_is_refused_at_start(tmp_path: Path, install: Install) -> None:
    install("last_first", turns(shares="True"))
    house = House(tmp_path, '[scheduling]\nscheduler = "last_first"\n')
    with pytest.raises(PluginError, match=r"'last_first'.*cannot be prepared"):
        asyncio.run(house.__aenter__())


def codes(clients: Sequence[Client]) -> list[str]:
    return [client.code for client in clients]


@pytest.mark.parametrize("engines", [1, 2])
def test_a_request_that_cannot_make_its_deadline_is_refused_at_once(
    in_virtual_time: Run, tmp_path: Path, engines: int
) -> None:
    async def scenario() -> None:
        async with House(tmp_path, count=engines) as house:
            for _ in range(20 * engines):
                house.send("crowd")
            await asyncio.sleep(10.4)  # meanwhile the gateway learns how fast requests are served
            late, early = house.send("single", b"300"), house.send("single", b"3000")
            assert (late.code, late.took) == ("deadline", 0.0)
            await asyncio.sleep(8)
            assert early.code == ""
            assert early.took < 3.1  # those without a deadline are served later

    in_virtual_time(scenario())


def test_a_deadline_that_passes_while_a_request_waits_ends_it(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with House(tmp_path, objective=500) as house:
            for _ in range(2):
                house.send("crowd")
            client = house.send("single")
            await asyncio.sleep(3)
            assert client.code == "deadline"
            assert 0.5 <= client.took < 0.8
            assert house.send("single", b"5000").code == "live"  # the header counts more than the key
            assert house.send("single", b"soon").code == "invalid_request"

    in_virtual_time(scenario())


@pytest.mark.parametrize("engines", [1, 2])
def test_requests_of_low_priority_are_shed_first(in_virtual_time: Run, tmp_path: Path, engines: int) -> None:
    async def scenario() -> None:
        table = '[routing]\nshed_after = "4s"\n'
        async with House(tmp_path, table, crowd=-1, count=engines) as house:
            first = [house.send("crowd") for _ in range(12 * engines)]
            await asyncio.sleep(10.5)
            assert codes(first).count("") == 10 * engines
            more = [house.send("crowd") for _ in range(6 * engines)]
            shed = codes(more).count("overloaded")
            assert 1 <= shed <= 4 * engines
            assert codes(more)[-shed:] == ["overloaded"] * shed
            better = house.send("single")
            assert better.code == "live"
            assert codes(more).count("overloaded") == shed + 1
            await asyncio.sleep(10)
            assert better.code == ""
            assert house.gateway.waiting == 0

    in_virtual_time(scenario())
