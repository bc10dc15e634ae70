"""What an engine is asked around its launch: nothing twice, and nothing before its first request."""

from __future__ import annotations

from pathlib import Path

import msgspec

from enginehouse.app.config_change import ConfigChange
from tests.support.launched_gateway import Launches, served
from tests.support.scripted_engine import scripted_engines

ANSWER = b'{"data": [{"id": "m"}], "choices": [], "total_slots": %d}'


async def test_the_first_request_comes_right_after_the_health_check_on_its_connection(tmp_path: Path) -> None:
    async with scripted_engines() as start:
        engine = await start()
        async with served(Launches(engine.url), tmp_path) as gateway:
            assert (await gateway.ask()).status == 200
            assert (await gateway.ask()).status == 200
            check, *requests = engine.calls[:3]
    assert check.request_line == b"GET /health HTTP/1.1"
    assert [each.request_line for each in requests] == [b"POST /v1/chat/completions HTTP/1.1"] * 2
    assert {each.connection for each in requests} == {check.connection}


async def test_an_engine_launched_again_tells_its_limit_at_its_first_probe(tmp_path: Path) -> None:
    async with scripted_engines() as start:
        engine = await start()
        engine.otherwise((engine.answer(ANSWER % 4),))
        async with served(Launches(engine.url), tmp_path, driver="llamacpp") as gateway:
            load = gateway.gateway.fleet.load("m")
            assert (await gateway.ask()).status == 200
            assert load.slots == 4
            await gateway.gateway.engines.unload()
            engine.otherwise((engine.answer(ANSWER % 8),))
            assert (await gateway.ask()).status == 200
            assert load.slots == 4, "it was as large the last time"
            await gateway.until(lambda: load.slots == 8)


async def test_a_limit_that_is_no_longer_configured_is_that_of_the_engine(tmp_path: Path) -> None:
    async with scripted_engines() as start:
        engine = await start()
        engine.otherwise((engine.answer(ANSWER % 4),))
        async with served(Launches(engine.url), tmp_path, driver="llamacpp", concurrency=2) as gateway:
            current, load = gateway.gateway.current, gateway.gateway.fleet.load("m")
            assert (await gateway.ask()).status == 200
            assert load.slots == 2
            model = msgspec.structs.replace(current.config.models["m"], concurrency=0)
            config = msgspec.structs.replace(current.config, models={"m": model})
            change = ConfigChange(current, current.joined.joined_to(config))
            change.work_out()
            change.complete()
            current.put_in_force(change)
            assert load.slots == 0
            await gateway.until(lambda: load.slots == 4)
