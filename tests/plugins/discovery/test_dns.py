from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import cast

import dns.asyncresolver
import dns.message
import dns.rrset
import pytest

from enginehouse import ConfigError
from enginehouse.backends import FoundBackend
from enginehouse_discovery.dns import DnsConfig, DnsDiscoverer
from enginehouse_kit.testing import check_discoverer

RECORDS = {
    ("engines.test.", "A"): ["10.0.0.2", "10.0.0.1"],
    ("engines.test.", "AAAA"): ["fd00::1"],
    ("_http._tcp.engines.test.", "SRV"): ["1 5 8001 b.test.", "0 5 8000 a.test."],
    ("_http._tcp.none.test.", "SRV"): ["0 0 0 ."],
}


class DnsServer(asyncio.DatagramProtocol):
    """Answers questions over UDP with ``RECORDS``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        asked = dns.message.from_wire(data)
        [question] = asked.question
        kind = dns.rdatatype.to_text(question.rdtype)
        answer = dns.message.make_response(asked)
        if records := RECORDS.get((str(question.name), kind)):
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *records))
        elif str(question.name) not in {name for name, _ in RECORDS}:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(answer.to_wire(), addr)


@pytest.fixture
async def resolver() -> AsyncIterator[str]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(DnsServer, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    yield f"{host}:{port}"
    transport.close()


class Lookup:
    async def addresses(self, name: str) -> list[str]:
        return ["10.0.0.1"]

    async def servers(self, service: str) -> list[tuple[str, int, int]]:
        return []


def test_it_conforms() -> None:
    check_discoverer(lambda: DnsDiscoverer(DnsConfig(name="x"), Lookup()))


async def test_each_address_of_a_name_is_a_backend(resolver: str) -> None:
    config = DnsConfig(name="engines.test", port=8000, driver="vllm", concurrency=4, resolver=resolver)
    found = await anext(aiter(DnsDiscoverer(config).watch()))
    assert [each.url for each in found.values()] == [
        "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000",
    ]  # fmt: skip
    assert {(each.driver, each.concurrency) for each in found.values()} == {("vllm", 4)}


async def test_each_server_of_a_service_is_a_backend(resolver: str) -> None:
    config = DnsConfig(service="_http._tcp.engines.test", scheme="https", resolver=resolver)
    assert await anext(aiter(DnsDiscoverer(config).watch())) == {
        "a.test:8000": FoundBackend(url="https://a.test:8000", priority=0),
        "b.test:8001": FoundBackend(url="https://b.test:8001", priority=1),
    }


async def test_a_short_name_is_completed_as_the_machine_says(
    resolver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = resolver.partition(":")
    (tmp_path / "resolv.conf").write_text(f"nameserver {host}\nsearch example test\n")
    machine = partial(dns.asyncresolver.Resolver, str(tmp_path / "resolv.conf"))
    monkeypatch.setattr(dns.asyncresolver, "Resolver", machine)
    discoverer = DnsDiscoverer(DnsConfig(name="engines"))
    discoverer._lookup._resolver.port = int(port)  # type: ignore[attr-defined]
    assert len(await anext(aiter(discoverer.watch()))) == 3


async def test_a_service_that_is_decidedly_not_there_has_no_backends(resolver: str) -> None:
    config = DnsConfig(service="_http._tcp.none.test", resolver=resolver)
    assert await anext(aiter(DnsDiscoverer(config).watch())) == {}


async def test_a_name_that_does_not_exist_has_no_backends(resolver: str) -> None:
    assert await anext(aiter(DnsDiscoverer(DnsConfig(name="gone.test", resolver=resolver)).watch())) == {}


@pytest.mark.parametrize("config", [DnsConfig(), DnsConfig(name="a", service="b")])
def test_it_takes_a_name_or_a_service(config: DnsConfig) -> None:
    with pytest.raises(ConfigError):
        DnsDiscoverer(config, Lookup())


@pytest.mark.parametrize(
    ("resolver", "asked"),
    [
        ("10.0.0.1", ("10.0.0.1", 53)),
        ("10.0.0.1:5353", ("10.0.0.1", 5353)),
        ("::1", ("::1", 53)),
        ("fd00::1", ("fd00::1", 53)),
        ("[fd00::1]", ("fd00::1", 53)),
        ("[fd00::1]:5353", ("fd00::1", 5353)),
    ],
)
def test_the_address_of_a_resolver(resolver: str, asked: tuple[str, int]) -> None:
    made = DnsDiscoverer(DnsConfig(name="a", resolver=resolver))._lookup._resolver  # type: ignore[attr-defined]
    assert (made.nameservers, made.port) == ([asked[0]], asked[1])


@pytest.mark.parametrize(
    "resolver", ["dns.example", "10.0.0.1:x", "10.0.0.1:70000", "[::1", "10.0.0.1:", ":53", "1.2.3"]
)
def test_a_resolver_that_is_no_address_is_refused(resolver: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a DNS server"):
        DnsDiscoverer(DnsConfig(name="a", resolver=resolver))


async def test_an_ipv6_resolver_answers() -> None:
    try:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(DnsServer, local_addr=("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    port = transport.get_extra_info("sockname")[1]
    config = DnsConfig(name="engines.test", resolver=f"[::1]:{port}")
    assert len(await anext(aiter(DnsDiscoverer(config).watch()))) == 3
    transport.close()
