"""An observer sees what ended requests asked for, and sends requests whose answers nobody reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enginehouse import Observer, RequestRecord, Requirements
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.records import ReadContents, RequestContents, SendAside
from enginehouse.services import Configured
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import event

SHADOW = "x-shadow"


class Shadow(Observer):
    """Sends what it sees to the model that a header names. ``wanted``: whether it sees anything."""

    made: Shadow
    wanted = True

    def __init__(self) -> None:
        Shadow.made = self
        self.seen: list[RequestContents] = []
        self.zones: list[Any] = []
        self.sent: list[bool] = []
        self.records: list[RequestRecord] = []

    def use_aside(self, aside: SendAside) -> None:
        self._aside = aside

    def with_contents(self, configured: Configured) -> ReadContents | None:
        return self._ended if self.wanted else None

    def _ended(self, record: RequestRecord, requirements: Requirements, contents: RequestContents) -> None:
        self.seen.append(contents)
        self.zones.append(requirements.zones)
        for name, value in contents.headers:
            if name == SHADOW.encode():
                self.sent.append(self.send(value.decode(), contents, f"{record.id}-shadow"))

    def send(self, model: str, contents: RequestContents, request_id: str) -> bool:
        return self._aside(model, contents, request_id, self.records.append)


class Fails(Observer):
    """Fails in each of its calls, and has an aside fail when it ends, if it is ``wanted``."""

    wanted = False

    def use_aside(self, aside: SendAside) -> None:
        self._aside = aside

    def with_contents(self, configured: Configured) -> ReadContents | None:
        if not self.wanted:
            return None

        def ended(record: RequestRecord, requirements: Requirements, contents: RequestContents) -> None:
            def fail(record: RequestRecord) -> None:
                raise SystemExit(record.id)

            self._aside("m", contents, "failing", fail)
            raise KeyError("fails")

        return ended


class FailsAtStart(Observer):
    def with_contents(self, configured: Configured) -> ReadContents | None:
        raise KeyError("fails at start")


@pytest.fixture(scope="module")
def registry() -> Registry:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    for factory in (FailsAtStart, Fails, Shadow):
        registry.add([Registered(kind="observer", type=factory.__name__.lower(), factory=factory, **origin)])
    return registry


async def shadowed(house: OpenGateway, *engines: ScriptedEngine, **sections: Any) -> ServedGateway:
    gateway = await house(*engines, **sections, telemetry={"access_log": False})
    gateway.gateway.path.observe()
    return gateway


async def test_it_gets_what_was_asked_and_learns_what_came_of_its_own_request(
    house: OpenGateway, engine: StartEngine
) -> None:
    real, other = await engine(), await engine()
    gateway = await shadowed(house, real, backends={"other": {"url": other.url, "models": ["n"]}})
    shadow = Shadow.made
    await gateway.ask(gateway.post(b'{"model":"m","a":1}', b"x-request-id: r", b"x-shadow: n"))
    await gateway.quiet()
    [seen] = shadow.seen
    assert (seen.path, seen.body) == ("/v1/chat/completions", b'{"model":"m","a":1}')
    assert (b"x-request-id", b"r") in seen.headers
    assert [call.body for call in other.calls] == [b'{"model":"n","a":1}']
    assert shadow.sent == [True]
    [record] = shadow.records
    assert (record.id, record.asked, record.status, record.caller) == ("r-shadow", "n", 200, None)


async def test_one_that_sees_no_contents_may_send_its_own(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shadow, "wanted", False)
    real = await engine()
    gateway = await shadowed(house, real)
    shadow, contents = Shadow.made, RequestContents("/v1/completions", [], b'{"model":"any","prompt":"x"}')
    for number in range(20):
        assert shadow.send("m", contents, f"own-{number}")
        await gateway.quiet()
    assert [record.id for record in shadow.records] == [f"own-{number}" for number in range(20)]
    assert real.calls[0].body == b'{"model":"m","prompt":"x"}'


async def test_it_sees_no_forms_and_no_requests_that_were_refused_unread(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await shadowed(house, await engine())
    form = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
    lines = b"content-type: multipart/form-data; boundary=b"
    await gateway.ask(gateway.post(form, lines, path="/v1/audio/transcriptions"))
    assert (await gateway.ask(gateway.post(b"{"))).status == 400
    await gateway.quiet()
    assert Shadow.made.seen == []


async def test_a_zone_is_told(house: OpenGateway, engine: StartEngine) -> None:
    zones = {"private": {"headers": ["x-zone: private"]}}
    gateway = await shadowed(house, await engine(), backend={"zone": "private"}, zones=zones)
    await gateway.ask(gateway.post(None, b"x-zone: private"))
    await gateway.ask()
    private, free = Shadow.made.zones
    assert private
    assert not free


async def test_no_second_engine_is_asked_however_slow_the_first_is(house: OpenGateway, engine: StartEngine) -> None:
    real, slow, idle = await engine(), await engine(), await engine()
    real.streams(event(), b"data: [DONE]\n\n", real.END)
    free = asyncio.Event()
    for each in (slow, idle):
        each.otherwise((free, each.answer()))
    twins = {name: {"url": each.url, "models": ["n"]} for name, each in (("slow", slow), ("idle", idle))}
    gateway = await shadowed(house, real, backends=twins, routing={"hedge_after": "1ms"})
    await gateway.ask(gateway.post(None, b"x-shadow: n", stream=True))
    await gateway.until(lambda: len(slow.calls) + len(idle.calls) == 1)
    [aside] = gateway.relay.live
    assert aside._hedge is None  # type: ignore[attr-defined]
    free.set()
    await gateway.quiet()
    assert len(slow.calls) + len(idle.calls) == 1
    assert not gateway.relay.context.counters.hedges


async def test_room_comes_back_although_a_reload_has_ended_the_observer_s_interest(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, other = await engine(), await engine()
    free = asyncio.Event()
    other.otherwise((free, other.answer()))
    gateway = await shadowed(house, real, backends={"other": {"url": other.url, "models": ["n"]}})
    shadow, ask = Shadow.made, gateway.post(None, b"x-shadow: n")
    for _ in range(17):
        await gateway.ask(ask)
    assert shadow.sent == [True] * 16 + [False]
    monkeypatch.setattr(Shadow, "wanted", False)
    gateway.gateway.path.observe()
    free.set()
    await gateway.until(lambda: len(shadow.records) == 16)
    monkeypatch.setattr(Shadow, "wanted", True)
    gateway.gateway.path.observe()
    await gateway.ask(ask)
    assert shadow.sent[17:] == [True]


async def test_the_bytes_of_asides_are_bounded(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, other = await engine(), await engine()
    free = asyncio.Event()
    other.otherwise((free, other.answer()))
    gateway = await shadowed(house, real, backends={"other": {"url": other.url, "models": ["n"]}})
    large = {"prompt": "x" * (24 << 20)}
    for _ in range(3):
        assert (await gateway.ask(gateway.post(large, b"x-shadow: n"))).status == 200
    await gateway.ask(gateway.post(None, b"x-shadow: n"))
    assert Shadow.made.sent == [True, True, False, True]
    free.set()


async def test_an_observer_that_fails_harms_nobody(
    house: OpenGateway,
    engine: StartEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    every_failure: None,
) -> None:
    monkeypatch.setattr(Fails, "wanted", True)
    real = await engine()
    gateway = await shadowed(house, real)
    assert [(await gateway.ask()).status for _ in range(2)] == [200, 200]
    await gateway.quiet()
    assert len(Shadow.made.seen) == 2, "the asides of the other one are not shown"
    assert len(real.calls) == 4
    for text in ("failed in with_contents", "failed in ended", "failed in fail"):
        assert text in caplog.text
