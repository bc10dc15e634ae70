"""The discoverer and real zeroconf, both on the loopback interface. Each test has a type of services of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import ClassVar, cast
from uuid import uuid4

import pytest
import zeroconf
import zeroconf.asyncio
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from enginehouse import ConfigError
from enginehouse.backends import FoundBackend
from enginehouse.domain.replica import Role
from enginehouse_discovery import mdns
from enginehouse_discovery.mdns import MdnsConfig, MdnsDiscoverer
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import check_discoverer

LOOPBACK = ("127.0.0.1",)

Watch = AsyncIterator[Mapping[str, FoundBackend]]


@pytest.fixture
def kind() -> str:
    return f"_t{uuid4().hex[:10]}._tcp"


@pytest.fixture
async def network() -> AsyncIterator[AsyncZeroconf]:
    """A neighbour, which announces servers."""
    neighbour = AsyncZeroconf(interfaces=list(LOOPBACK))
    yield neighbour
    await neighbour.async_unregister_all_services()
    await neighbour.async_close()


def service(kind: str, name: str, port: int = 8000, **said: str) -> AsyncServiceInfo:
    kind = f"{kind}.local."
    return AsyncServiceInfo(kind, f"{name}.{kind}", port=port, parsed_addresses=["127.0.0.1"], properties=said)


def config(*kinds: str, announce: str = "", driver: str = "openai") -> MdnsConfig:
    return MdnsConfig(services=kinds, announce=announce, driver=driver, interfaces=LOOPBACK, interval=0.05)


async def until(watch: Watch, holds: Callable[[Mapping[str, FoundBackend]], bool]) -> Mapping[str, FoundBackend]:
    async for found in watch:
        if holds(found):
            return found
    raise AssertionError("it ended its list")


def test_it_conforms(kind: str) -> None:
    check_discoverer(lambda: MdnsDiscoverer(config(kind)))


async def test_servers_come_with_what_they_say_and_leave(kind: str, network: AsyncZeroconf) -> None:
    said = {"driver": "vllm", "models": "a, b", "role": "prefill", "priority": "2", "scheme": "https", "txtvers": "1"}
    await network.async_register_service(service(kind, "GPU box", 8001, **said))
    await network.async_register_service(service(kind, "plain"))
    watch = MdnsDiscoverer(config(kind, driver="sglang")).watch()
    found = await until(watch, lambda found: len(found) == 2)
    assert found["GPU-box"] == FoundBackend(
        url="https://127.0.0.1:8001", driver="vllm", models=["a", "b"], role=Role.PREFILL, priority=2,
        labels={"service": f"GPU box.{kind}.local."},
    )  # fmt: skip
    assert found["plain"].driver == "sglang"
    await network.async_unregister_service(service(kind, "plain"))
    assert set(await until(watch, lambda found: len(found) == 1)) == {"GPU-box"}
    await watch.aclose()  # type: ignore[attr-defined]


async def test_a_word_that_cannot_be_read_harms_nobody(kind: str, network: AsyncZeroconf) -> None:
    await network.async_register_service(service(kind, "odd", priority="high"))
    watch = MdnsDiscoverer(config(kind)).watch()
    found = await until(watch, lambda found: len(found) == 1)
    assert (found["odd"].url, found["odd"].priority) == ("http://127.0.0.1:8000", 0)
    assert "priority" in found["odd"].labels["ignored"]
    await watch.aclose()  # type: ignore[attr-defined]


async def test_one_server_under_two_types_is_one_backend(kind: str, network: AsyncZeroconf) -> None:
    """It has the name under which it was found first, whichever type answers first, and keeps it."""
    other = f"_u{kind[2:]}"
    for each in (other, kind):
        await network.async_register_service(service(each, f"as {each[:2]}"))
    await network.async_register_service(service(other, "second", 8002))
    watch = MdnsDiscoverer(config(kind, other)).watch()
    found = await until(watch, lambda found: len(found) == 2)
    [name] = set(found) - {"second"}
    assert name in ("as-_t", "as-_u")
    await network.async_unregister_service(service(name[-2:] + kind[2:], name.replace("-", " ")))
    await network.async_register_service(service(other, "third", 8003))
    assert set(await until(watch, lambda found: "third" in found)) == {name, "second", "third"}
    await watch.aclose()  # type: ignore[attr-defined]


class Details:
    """Stands in for the details that zeroconf asks for: each service is a server at a port of this machine."""

    ports: ClassVar[dict[str, int]] = {}

    def __init__(self, kind: str, name: str) -> None:
        self.name = name

    async def async_request(self, zeroconf: object, timeout: float) -> bool:
        return self.name in self.ports

    def parsed_scoped_addresses(self, version: object) -> list[str]:
        return ["10.0.0.1"]

    @property
    def port(self) -> int:
        return self.ports[self.name]

    decoded_properties: ClassVar[dict[str, str]] = {}


class Neighbours:
    """What the discoverer hears of its network, event by event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
        monkeypatch.setattr(zeroconf.asyncio, "AsyncServiceInfo", Details)
        monkeypatch.setattr(Details, "ports", {})
        nobody = SimpleNamespace(zeroconf=SimpleNamespace(registry=SimpleNamespace(async_get_info_name=lambda _: None)))
        self.found = mdns._Found(cast(AsyncZeroconf, nobody), config(*kinds))

    def comes(self, kind: str, name: str, port: int) -> None:
        Details.ports[f"{name}.{kind}.local."] = port
        self.found.changed(None, f"{kind}.local.", f"{name}.{kind}.local.", zeroconf.ServiceStateChange.Added)

    def changes(self, kind: str, name: str) -> None:
        self.found.changed(None, f"{kind}.local.", f"{name}.{kind}.local.", zeroconf.ServiceStateChange.Updated)

    def goes(self, kind: str, name: str) -> None:
        self.found.changed(None, f"{kind}.local.", f"{name}.{kind}.local.", zeroconf.ServiceStateChange.Removed)

    async def names(self) -> dict[str, str]:
        return {name: backend.url for name, backend in (await self.found.backends()).items()}


@pytest.mark.parametrize("first", ["_a._tcp", "_b._tcp"])
async def test_a_backend_keeps_its_name_whichever_type_answers_first(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Neighbours(monkeypatch, "_a._tcp", "_b._tcp")
    second = "_b._tcp" if first == "_a._tcp" else "_a._tcp"
    network.comes(first, "one", 8000)
    assert await network.names() == {"one": "http://10.0.0.1:8000"}
    network.comes(second, "other", 8000)
    assert await network.names() == {"one": "http://10.0.0.1:8000"}
    network.goes(first, "one")
    assert await network.names() == {"one": "http://10.0.0.1:8000"}
    network.goes(second, "other")
    assert await network.names() == {}


async def test_servers_of_one_name_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Neighbours(monkeypatch, "_a._tcp", "_b._tcp", "_c._tcp")
    for kind, port in (("_c._tcp", 8003), ("_b._tcp", 8002), ("_a._tcp", 8001)):
        network.comes(kind, "box", port)
        before = await network.names()
    assert before == {
        "box": "http://10.0.0.1:8003",
        "box-10.0.0.1-8002": "http://10.0.0.1:8002",
        "box-10.0.0.1-8001": "http://10.0.0.1:8001",
    }


async def test_a_server_stays_while_its_new_details_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Neighbours(monkeypatch, "_a._tcp")
    network.comes("_a._tcp", "box", 8000)
    assert await network.names() == {"box": "http://10.0.0.1:8000"}
    Details.ports.clear()
    network.changes("_a._tcp", "box")
    assert await network.names() == {"box": "http://10.0.0.1:8000"}
    Details.ports["box._a._tcp.local."] = 9000
    assert await network.names() == {"box": "http://10.0.0.1:9000"}


def test_a_gateway_announces_itself_and_does_not_find_itself(kind: str) -> None:
    table = f'[discovery.home]\ntype = "mdns"\nservices = ["{kind}"]\nannounce = "{kind}"\ninterfaces = ["127.0.0.1"]\n'
    with RunningGateway(f"{table}interval = '100ms'\n") as gateway:

        async def look() -> Mapping[str, FoundBackend]:
            watch = MdnsDiscoverer(config(kind)).watch()
            found = await until(watch, lambda found: len(found) == 1)
            await watch.aclose()  # type: ignore[attr-defined]
            return found

        [found] = asyncio.run(look()).values()
        assert found.url == gateway.url
        [home] = gateway.until(lambda status: status["discovery"][0]["age_s"] is not None)["discovery"]
        assert (home["backends"], home["error"]) == (0, None)


@pytest.mark.parametrize(
    ("host", "interfaces", "addresses"),
    [
        ("127.0.0.1", (), []),
        ("127.0.0.1", LOOPBACK, ["127.0.0.1"]),
        ("10.0.0.5", (), ["10.0.0.5"]),
        ("0.0.0.0", ("10.0.0.5",), ["10.0.0.5"]),
        ("::", (), ["10.0.0.7"]),
    ],
)
def test_a_gateway_is_announced_where_others_reach_it(
    host: str, interfaces: tuple[str, ...], addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mdns, "_own_addresses", lambda: ["127.0.0.1", "10.0.0.7"])
    assert mdns._reachable(host, interfaces) == addresses


def test_the_own_addresses_include_the_loopback_interface() -> None:
    assert "127.0.0.1" in mdns._own_addresses()


def test_without_zeroconf_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        MdnsDiscoverer(MdnsConfig())
    assert "enginehouse[mdns]" in caught.value.remedy


@pytest.mark.parametrize("kind", ["llm", "_llm._tcp.local.", "_a_name_that_is_too_long._tcp"])
def test_a_type_of_services_is_written_as_in_dns(kind: str) -> None:
    with pytest.raises(ConfigError, match="not a type of services"):
        MdnsDiscoverer(MdnsConfig(services=[kind]))


def test_a_long_host_name_makes_a_valid_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 64)
    assert mdns._labels() == ("enginehouse on " + "h" * 48, "enginehouse-" + "h" * 51)
