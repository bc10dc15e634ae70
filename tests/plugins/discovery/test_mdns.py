"""The discoverer and real zeroconf, both on the loopback interface. Each test has a type of services of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from uuid import uuid4

import pytest
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from enginehouse import ConfigError, FoundBackend
from enginehouse.domain.replica import Role
from enginehouse.testing import check_discoverer
from enginehouse.testing.gateway import RunningGateway
from enginehouse_discovery import mdns
from enginehouse_discovery.mdns import MdnsConfig, MdnsDiscoverer

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
    other = f"_u{kind[2:]}"
    for each in (other, kind):
        await network.async_register_service(service(each, f"as {each[:2]}"))
    await network.async_register_service(service(other, "second", 8002))
    watch = MdnsDiscoverer(config(kind, other)).watch()
    assert set(await until(watch, lambda found: len(found) == 2 and "second" in found)) == {"as-_t", "second"}
    await watch.aclose()  # type: ignore[attr-defined]


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
