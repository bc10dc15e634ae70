"""``routing.mirrors``: another model gets copies of requests, and clients notice nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse import ReplicaState
from tests.support.launched_engine import Launch
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import event


def twin(engine: ScriptedEngine, **settings: object) -> dict[str, Any]:
    return {"twin": {"url": engine.url, "models": ["m-new"], **settings}}


def mirrored(share: float = 1.0, to: str = "m-new") -> dict[str, Any]:
    return {"mirrors": {"m": {"to": to, "share": share}}}


async def comparison(gateway: ServedGateway) -> dict[str, Any]:
    status = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body)
    found: dict[str, Any] = status["mirrors"][0]
    return found


async def test_a_copy_is_sent_and_its_answer_is_dropped_and_compared(
    mirroring: OpenGateway, engine: StartEngine
) -> None:
    real, new = await engine(), await engine()
    new.otherwise((new.answer(b'{"error":{}}', 500),))
    gateway = await mirroring(real, backends=twin(new), routing=mirrored(), checks={"failures": 10})
    secret = (b"authorization: Bearer client", b"x-session-id: s", b"x-request-id: chosen")
    assert [(await gateway.ask(gateway.post(b'{"model":"m","a":1}', *secret))).status for _ in range(3)] == [200] * 3
    await gateway.quiet()
    assert [call.body for call in new.calls] == [b'{"model":"m-new","a":1}'] * 3
    assert len(real.calls) == 3
    copy = new.calls[0]
    assert copy.header(b"x-request-id") == [b"chosen-mirror"]
    assert not copy.header(b"authorization")
    assert not copy.header(b"x-session-id")
    found = await comparison(gateway)
    assert (found["model"], found["to"], found["same"], found["differs"], found["skipped"]) == ("m", "m-new", 0, 3, 0)
    assert found["statuses"] == [{"real": 200, "mirror": 500, "requests": 3}]
    new.otherwise((new.answer(),))
    await gateway.ask()
    await gateway.quiet()
    found = await comparison(gateway)
    assert (found["same"], found["differs"]) == (1, 3)
    assert set(found["first_byte_ms"]) == {"real", "mirror"}
    assert all(value > 0 for value in found["first_byte_ms"].values()), "errors have no part in it"
    page = (await gateway.ask(gateway.get("/metrics"))).body
    assert b'enginehouse_mirrored_requests_total{model="m",outcome="differs",to="m-new"} 3.0' in page
    assert b'enginehouse_mirror_duration_seconds_count{model="m",side="mirror",to="m-new"} 1.0' in page


async def test_a_stream_is_copied_as_a_stream(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    for each in (real, new):
        each.streams(event(), b"data: [DONE]\n\n", each.END)
    gateway = await mirroring(real, backends=twin(new), routing=mirrored())
    assert (await gateway.ask(gateway.post(stream=True))).status == 200
    await gateway.quiet()
    [copy] = new.calls
    assert msgspec.json.decode(copy.body)["stream"] is True
    assert (await comparison(gateway))["same"] == 1


@pytest.mark.parametrize(("share", "copies"), [(0.0, 0), (0.1, 2), (0.25, 5), (1.0, 20)])
async def test_a_share_of_the_requests_is_copied(
    mirroring: OpenGateway, engine: StartEngine, share: float, copies: int
) -> None:
    real, new = await engine(), await engine()
    gateway = await mirroring(real, backends=twin(new), routing=mirrored(share))
    for _ in range(20):
        await gateway.ask()
    await gateway.quiet()
    assert len(new.calls) == copies


async def test_a_mirror_that_hangs_holds_up_nobody_and_gets_no_more_than_it_has_room_for(
    mirroring: OpenGateway, engine: StartEngine
) -> None:
    real, new = await engine(), await engine()
    free = asyncio.Event()
    new.otherwise((free, new.answer()))
    gateway = await mirroring(real, backends=twin(new, concurrency=3), routing=mirrored())
    assert [(await gateway.ask()).status for _ in range(10)] == [200] * 10
    await gateway.until(lambda: len(new.calls) == 3)
    assert (await comparison(gateway))["skipped"] == 7
    free.set()
    await gateway.quiet()
    assert (await comparison(gateway))["same"] == 3


async def test_the_number_of_copies_is_bounded(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    free = asyncio.Event()
    new.otherwise((free, new.answer()))
    gateway = await mirroring(real, backends=twin(new), routing=mirrored())
    for _ in range(20):
        await gateway.ask()
    await gateway.until(lambda: len(new.calls) == 16)
    assert (await comparison(gateway))["skipped"] == 4
    free.set()
    await gateway.quiet()


async def test_a_copy_is_never_sent_again_and_spends_no_retries(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    new.otherwise((new.answer(b"{}", 503),))
    both = twin(new) | {"third": {"url": new.url, "models": ["m-new"]}}
    gateway = await mirroring(real, backends=both, routing=mirrored())
    await gateway.ask()
    await gateway.quiet()
    assert len(new.calls) == 1
    assert not gateway.relay.context.counters.retries


async def test_requests_that_stay_in_a_zone_have_no_copy(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    zones = {"private": {"headers": ["x-zone: private"]}}
    gateway = await mirroring(real, backend={"zone": "private"}, backends=twin(new), routing=mirrored(), zones=zones)
    assert (await gateway.ask(gateway.post(None, b"x-zone: private"))).status == 200
    await gateway.quiet()
    assert not new.calls
    assert (await gateway.ask()).status == 200
    await gateway.quiet()
    assert len(new.calls) == 1


async def test_a_mirror_without_an_engine_is_skipped(mirroring: OpenGateway, engine: StartEngine) -> None:
    gateway = await mirroring(await engine(), routing=mirrored(to="unknown"))
    assert (await gateway.ask()).status == 200
    assert (await comparison(gateway))["skipped"] == 1


async def test_an_alias_may_be_what_is_copied_and_where_it_goes(mirroring: OpenGateway, engine: StartEngine) -> None:
    real, new = await engine(), await engine()
    routing = {"aliases": {"gpt-4": "m", "next": "m-new"}, "mirrors": {"gpt-4": {"to": "next"}}}
    gateway = await mirroring(real, backends=twin(new), routing=routing)
    await gateway.ask()
    await gateway.ask(gateway.post(b'{"model":"gpt-4"}'))
    await gateway.quiet()
    assert [call.body for call in new.calls] == [b'{"model":"m-new"}']
    assert (await comparison(gateway))["same"] == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat"])
async def test_a_copy_loads_no_model_of_an_alias(
    mirroring: OpenGateway, engine: StartEngine, launched: Launch, path: str
) -> None:
    cold, real, new = await engine(), await engine(), await engine()
    gateway = await mirroring(
        cold,
        backends={"b": {"url": real.url, "models": ["x"]}, "c": {"url": new.url, "models": ["m-new"]}},
        routing={"mirrors": {"x": {"to": "pair"}}, "aliases": {"pair": ["m", "m-new"]}},
        models={"m": {}, "x": {"endpoints": []}, "m-new": {"endpoints": []}},
    )
    managed = launched(gateway, "a")
    gateway.fleet.set_state("m@a", ReplicaState.STOPPED)
    answer = b'{"choices": [{"message": {"content": "Hi"}}]}'
    real.says(answer)
    new.says(answer)
    assert (await gateway.ask(gateway.post({"model": "x", "messages": []}, path=path))).status == 200
    await gateway.until(lambda: bool(new.calls or managed.starts))
    assert (len(new.calls), managed.starts) == (1, 0)
    await gateway.quiet()
