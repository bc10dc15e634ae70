"""Services of plugins: their life, and that one that fails harms nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from enginehouse import ConfigError, Service
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import ConfigErrors, ModelNotFound, PluginError
from enginehouse.engines.state_file import StateFile
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse.services import MetricInfo, ServiceGateway
from tests.support import plain_httpx
from tests.support.changed_config import reconfigure
from tests.support.waiting import until

COUNT = MetricInfo("counter", "acme_looks", "Looks.")


class Diary(Service):
    """Writes down what happens to it; ``fault`` names what fails."""

    class Config(msgspec.Struct, frozen=True):
        fault: str = ""

    metrics = (COUNT,)
    made: list[Diary] = []

    def __init__(self, config: Config) -> None:
        self.fault = config.fault
        self.pages = ["entry"]
        self.seen: list[str] = []
        self.looked = 0
        Diary.made.append(self)

    def prepare(self, gateway: ServiceGateway) -> None:
        if self.fault == "prepare":
            raise ConfigError("has no ink", key="services.diary.fault")
        if self.fault == "early":
            self.seen.append(str(gateway.folder))

    async def start(self, gateway: ServiceGateway) -> None:
        self.seen.append("start")
        if self.fault == "start":
            raise RuntimeError("no ink")
        if self.fault == "hang":
            await asyncio.Event().wait()
        if self.fault == "no pages":
            gateway.pages.add([Route("/api/lost", self.page), "/api/diary"])  # type: ignore[list-item]
        gateway.pages.add(each for each in [Route("/api/diary", self.page)])  # type: ignore[arg-type]
        gateway.pages.add([Route("/v1/diary", self.page)], for_callers=True)
        gateway.every("1s" if self.fault == "interval" else 0.01, self.look)  # type: ignore[arg-type]

    def look(self) -> Awaitable[None] | None:
        self.looked += 1
        if self.fault == "look":
            raise SystemExit("no ink")
        return asyncio.Event().wait() if self.fault == "look hangs" else None  # type: ignore[return-value]

    async def page(self, request: Request) -> Response:
        return PlainTextResponse("dear diary")

    def reconfigure(self, gateway: ServiceGateway) -> None:
        self.seen.append("reconfigure")

    async def stop(self) -> None:
        self.seen.append("stop")
        if self.fault == "stop":
            raise RuntimeError("no ink")

    def status(self) -> Mapping[str, Any]:
        if self.fault == "status":
            raise KeyError("ink")
        return {"diary": object() if self.fault == "odd status" else self.seen}

    def measure(self) -> dict[MetricInfo, Any]:
        faults = {"too many labels": (("a",), 1), "no number": ((), "many"), "no pair": 1}
        return {COUNT: [faults.get(self.fault, ((), self.looked))]}


@pytest.fixture
def gateway(tmp_path: Path) -> Callable[..., Gateway]:
    """Makes a gateway whose configuration has this."""
    Diary.made.clear()

    def make(service: type[Service] = Diary, **sections: object) -> Gateway:
        registry = load_plugins(PluginSettings()).registry
        origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
        registry.add([Registered(kind="service", type="diary", factory=service, **origin)])
        made = Gateway(msgspec.convert(sections, Config), registry)
        made.build_hosts(StateFile(tmp_path))
        return made

    return make


def services(**parameters: object) -> dict[str, object]:
    return {"services": {"diary": parameters}}


def row(gateway: Gateway, type: str = "diary") -> Mapping[str, Any] | None:
    return next((each for each in gateway.services.rows() if each["name"] == type), None)


async def test_a_service_lives_from_the_start_of_the_gateway_to_its_stop(gateway: Callable[..., Gateway]) -> None:
    house = gateway(**services())
    [diary] = Diary.made
    assert diary.seen == []
    await house.start()
    await house.settled()
    assert row(house) == {"name": "diary", "state": "running", "error": None}
    await until(lambda: diary.looked > 1)
    assert house.services.status()["diary"] == ["start"]
    [looks] = [
        series for each in house.services.measured() for info, series in each.items() if info.name == "acme_looks"
    ]
    assert sum(value for _, value in looks) == diary.looked
    transport = httpx.ASGITransport(house.application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/api/diary")).text == "dear diary"
        status = (await client.get("/api/status")).json()
        assert row(house) in status["services"]
        assert "acme_looks_total" in (await client.get("/metrics")).text
        await house.stop()
        assert diary.seen == ["start", "stop"]
        assert (await client.get("/api/diary")).status_code == 404
    assert row(house) == {"name": "diary", "state": "stopped", "error": None}


@pytest.mark.parametrize(("key", "operator", "caller"), [("k-root", 200, 200), ("k-ann", 403, 200), ("no", 401, 401)])
async def test_pages_are_for_operators_or_for_callers(
    gateway: Callable[..., Gateway], key: str, operator: int, caller: int
) -> None:
    keys = [{"name": "root", "key": "k-root", "admin": True}, {"name": "ann", "key": "k-ann"}]
    house = gateway(**services(), auth={"keys": keys})
    await house.start()
    await house.settled()
    transport = httpx.ASGITransport(house.application)
    head = {"authorization": f"Bearer {key}"}
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=head) as client:
        found = [(await client.get(path)).status_code for path in ("/api/diary", "/v1/diary")]
        assert found == [operator, caller]
        await house.stop()
        assert (await client.get("/v1/diary")).status_code == 404


async def test_without_keys_web_pages_get_no_page_for_callers(gateway: Callable[..., Gateway]) -> None:
    house = gateway(**services())
    await house.start()
    await house.settled()
    transport = httpx.ASGITransport(house.application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = [await client.get("/v1/diary", headers=head) for head in ({}, {"origin": "https://else.where"})]
        assert [each.status_code for each in found] == [200, 403]
    await house.stop()


async def test_without_its_table_a_service_does_not_run(gateway: Callable[..., Gateway]) -> None:
    house = gateway()
    assert row(house) is None
    assert Diary.made == []


async def test_a_reload_starts_tells_and_stops_services(gateway: Callable[..., Gateway]) -> None:
    house = gateway()
    await house.start()

    def reload(**sections: object) -> None:
        reconfigure(house, msgspec.convert(sections, Config))

    reload(**services())
    await until(lambda: (row(house) or {}).get("state") == "running")
    [first] = Diary.made  # what was prepared is what runs
    reload(**services(), checks={"interval": 7.0})
    assert Diary.made[-1] is not first, "the check has made another one"
    assert first.seen[:2] == ["start", "reconfigure"]
    reload(**services(fault="look"))
    await until(lambda: "stop" in first.seen)
    await until(lambda: (row(house) or {}).get("state") == "running")
    reload()
    assert row(house) is None
    with pytest.raises(ConfigError, match="no ink"):
        reload(**services(fault="prepare"))
    await house.stop()


async def test_only_replicas_of_models_that_there_are_can_be_wanted(gateway: Callable[..., Gateway]) -> None:
    class Wants(Diary):
        async def start(self, gateway: ServiceGateway) -> None:
            gateway.models.want("listed", 2)
            with pytest.raises(ModelNotFound):
                gateway.models.want("none", 2)
            self.seen.append("refused")

    house = gateway(Wants, **services(), backends={"a": {"url": "http://127.0.0.1:1", "models": ["listed"]}})
    await house.start()
    await house.settled()
    assert row(house) == {"name": "diary", "state": "running", "error": None}
    assert Diary.made[0].seen == ["refused"]
    await house.stop()


async def test_a_service_with_a_table_of_its_own_starts_at_once(gateway: Callable[..., Gateway]) -> None:
    house = gateway()
    await house.start()
    reconfigure(house, msgspec.convert({"batches": {}}, Config))
    await until(lambda: (row(house, "batches") or {}).get("state") == "running")
    await house.stop()


async def test_a_service_starts_anew_when_the_one_before_has_stopped(gateway: Callable[..., Gateway]) -> None:
    events, may_stop = list[str](), asyncio.Event()

    class Slow(Diary):
        async def start(self, gateway: ServiceGateway) -> None:
            events.append(f"start {self.fault}")

        async def stop(self) -> None:
            await may_stop.wait()
            events.append(f"stop {self.fault}")

    house = gateway(Slow, **services(fault="a"))
    await house.start()
    await until(lambda: events)
    reconfigure(house, msgspec.convert(services(fault="b"), Config))
    for _ in range(5):
        await asyncio.sleep(0)
    may_stop.set()
    await until(lambda: len(events) == 3)
    assert events == ["start a", "stop a", "start b"]
    await house.stop()


async def test_a_start_and_a_reload_tell_what_services_and_callers_refuse_with_all_else(
    gateway: Callable[..., Gateway],
) -> None:
    faulty: dict[str, object] = {"models": {"n": {"driver": "simm"}}, **services(fault="prepare")}
    faulty["auth"] = {"keys": [{"name": "jwt/ann", "key": "k"}]}
    with pytest.raises(ConfigErrors) as at_start:
        gateway(**faulty)
    house = gateway()
    with pytest.raises(ConfigErrors) as at_change:
        reconfigure(house, msgspec.convert(faulty, Config))
    for told in (at_start.value, at_change.value):
        assert [error.key for error in told.errors] == ["models.n.driver", "auth.keys[0].name", "services.diary.fault"]


@pytest.mark.parametrize(
    ("fault", "state", "error"),
    [
        ("start", "failed", "RuntimeError: no ink"),
        ("hang", "starting", None),
        ("look", "running", "SystemExit: no ink"),
        ("look hangs", "running", None),
        ("status", "running", "KeyError: 'ink'"),
        ("odd status", "running", "TypeError: Encoding objects of type object is unsupported"),
        ("too many labels", "running", "ValueError: acme_looks has the labels (), got values for 1"),
        ("no number", "running", 'TypeError: can only concatenate str (not "float") to str'),
        ("no pair", "running", "TypeError: cannot unpack non-iterable int object"),
        ("stop", "running", None),
        ("no pages", "failed", "TypeError: pages.add takes Starlette routes, got '/api/diary'"),
        ("interval", "failed", "ValueError: every takes a number of seconds, more than 0, got '1s'"),
    ],
)
async def test_one_that_fails_or_hangs_harms_nobody(
    gateway: Callable[..., Gateway], fault: str, state: str, error: str | None
) -> None:
    house = gateway(**services(fault=fault), checks={"timeout": 0.1})
    await house.start()
    await house.settled()

    def found() -> Mapping[str, Any]:
        house.services.status()
        house.services.measured()
        return row(house) or {}

    await until(lambda: (found()["state"], found()["error"]) == (state, error))
    assert "discovery" in house.services.status(), "the others go on"
    async with plain_httpx.AsyncClient(
        transport=httpx.ASGITransport(house.application), base_url="http://localhost"
    ) as client:
        assert (await client.get("/api/status")).status_code == 200
        assert (await client.get("/api/lost")).status_code == 404
    if fault == "look":
        Diary.made[0].fault = ""
        await until(lambda: found()["error"] is None)
    await house.stop()


async def test_a_call_that_does_not_return_is_shown(
    gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginehouse.app.services.service_calls._HUNG_S", 0.0)
    house = gateway(**services(fault="look hangs"))
    await house.start()
    await until(lambda: (row(house) or {}).get("state") == "hung")
    await house.stop()


async def test_a_wrong_table_or_parameter_keeps_the_gateway_from_starting(gateway: Callable[..., Gateway]) -> None:
    with pytest.raises(ConfigError, match=r"unknown service 'dairy' \(did you mean \"diary\""):
        gateway(services={"dairy": {}})
    with pytest.raises(ConfigError, match=r"services.diary.falt"):
        gateway(**services(falt=""))
    with pytest.raises(ConfigError, match="no ink"):
        gateway(**services(fault="prepare"))


async def test_no_service_gets_a_folder_before_there_is_one(gateway: Callable[..., Gateway]) -> None:
    with pytest.raises(
        PluginError,
        match="'diary' cannot be prepared: AssertionError: only the configuration and the clock are known before start",
    ):
        gateway(**services(fault="early"))


async def test_a_service_for_a_table_that_there_is_not_is_refused(gateway: Callable[..., Gateway]) -> None:
    class Lost(Diary):
        table = "dairies"

    with pytest.raises(PluginError, match="reads the table 'dairies', which the configuration does not have"):
        gateway(Lost)
