"""What is kept of a request's attempts."""

from __future__ import annotations

import asyncio

from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request_record import AttemptRecord, RequestRecord
from enginehouse.telemetry.plugin_times import SampledCall
from tests.support.launched_engine import Launch
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until


class Watched:
    """The requests of a gateway that have ended."""

    def __init__(self, gateway: ServedGateway) -> None:
        self.ended: list[RequestRecord] = []
        seen = SampledCall(PluginId("observer", "watched"), lambda facts: self.ended.append(facts.record()))
        gateway.relay.requests.at_end = [seen]

    async def attempts(self) -> list[tuple[str, str, int]]:
        """The backend, the outcome and the status of each attempt of the only request."""
        return [(each.backend, each.outcome, each.status) for each in await self.records()]

    async def records(self) -> list[AttemptRecord]:
        await until(lambda: self.ended)
        (entry,) = self.ended
        return list(entry.attempts)


async def test_a_served_request_has_one_attempt_with_its_times_in_order(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    watched = Watched(gateway)
    await gateway.ask()
    (record,) = await watched.records()
    assert await watched.attempts() == [("a", "served", 200)]
    assert not record.queued
    assert record.granted is None
    times = [watched.ended[0].arrived, record.began, record.sent or 0.0, record.first_byte or 0.0, record.ended]
    assert times == sorted(times)
    assert times[0] > 0


async def test_each_retry_is_an_attempt(house: OpenGateway, engine: StartEngine) -> None:
    busy, served = await engine(), await engine()
    gateway = await house(busy, await engine(there=False), served)
    watched = Watched(gateway)
    busy.says(b"{}", 503)
    await gateway.ask()
    assert await watched.attempts() == [("a", "answered", 503), ("b", "upstream_error", 0), ("c", "served", 200)]


async def test_an_attempt_that_no_other_follows_has_the_code_of_its_error(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(broken := await engine(), routing={"max_retries": 0})
    watched = Watched(gateway)
    broken.plays(ScriptedEngine.CLOSE)
    await gateway.ask()
    assert await watched.attempts() == [("a", "upstream_error", 0)]


async def test_a_client_that_leaves_ends_its_attempt(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(slow := await engine())
    watched = Watched(gateway)
    slow.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await slow.call()
    client.close()
    assert await watched.attempts() == [("a", "client_left", 0)]


async def test_a_request_that_is_routed_nowhere_has_no_attempt(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    watched = Watched(gateway)
    await gateway.ask(gateway.post({"model": "other"}))
    assert await watched.attempts() == []


async def test_an_attempt_at_a_backend_with_a_queue_knows_when_it_was_granted(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine())
    watched, cold = Watched(gateway), launched(gateway, "a")
    client = await gateway.client()
    client.send(gateway.post())
    await cold.gets_ready()
    await client.reply()
    (record,) = await watched.records()
    assert record.queued
    assert record.granted is not None
    assert record.began <= record.granted <= (record.sent or 0.0)


async def test_an_attempt_that_its_queue_rejects_was_never_granted(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine(), await engine())
    watched, cold = Watched(gateway), launched(gateway, "a")
    client = await gateway.client()
    client.send(gateway.post())
    await cold.does_not_start(LoadFailed("no"))
    await client.reply()
    first, _ = await watched.records()
    assert await watched.attempts() == [("a", "load_failed", 0), ("b", "served", 200)]
    assert (first.queued, first.granted, first.sent) == (True, None, None)
