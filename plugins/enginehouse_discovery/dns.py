"""The discoverer ``dns``: the addresses of a name, or the servers of a service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from enginehouse import ConfigError, Period
from enginehouse.backends import FoundBackend
from enginehouse_kit.discoverers import Discoverer

_WITH_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:]+))(?::(?P<port>\d{1,5}))?")


class DnsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name``: a host, each of whose addresses serves at ``port``. Or ``service``: the name of SRV records.

    ``driver``, ``scheme`` and ``concurrency`` are those of all backends; ``resolver``: the address of a DNS server,
    such as ``10.0.0.1``, ``10.0.0.1:5353`` or ``[fd00::1]:5353``. Without one, the search list of this machine
    completes short names.
    """

    name: str = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    service: str = ""
    driver: str = "openai"
    scheme: Literal["http", "https"] = "http"
    concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    resolver: str = ""
    interval: Annotated[Period, msgspec.Meta(description="time between two look-ups")] = 5.0


class Lookup(Protocol):
    """Asks DNS."""

    async def addresses(self, name: str) -> list[str]:
        """The addresses of ``name``, none if there is no such name. Raises an exception if that is not known."""
        ...

    async def servers(self, service: str) -> list[tuple[str, int, int]]:
        """The name, port and priority of each server of ``service``."""
        ...


class DnsDiscoverer(Discoverer):
    """Backends that DNS lists: addresses of a name, or SRV records, whose priorities become those of the backends."""

    Config: ClassVar[type[DnsConfig]] = DnsConfig

    def __init__(self, config: DnsConfig, lookup: Lookup | None = None) -> None:
        if bool(config.name) == bool(config.service):
            raise ConfigError("the discoverer 'dns' takes a 'name' or a 'service'", remedy="set one of the two")
        self._config = config
        self._lookup = lookup or _Resolver(config.resolver)

    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        config = self._config
        while True:
            if config.service:
                servers = await self._lookup.servers(config.service)
            else:
                servers = [(address, config.port, 0) for address in await self._lookup.addresses(config.name)]
            yield {f"{host}:{port}": self._backend(host, port, priority) for host, port, priority in sorted(servers)}
            await asyncio.sleep(config.interval)

    def _backend(self, host: str, port: int, priority: int) -> FoundBackend:
        config = self._config
        place = f"[{host}]" if ":" in host else host
        return FoundBackend(
            url=f"{config.scheme}://{place}:{port}",
            driver=config.driver,
            priority=priority,
            concurrency=config.concurrency,
        )


class _Resolver:
    """Asks the resolver of this machine, or the one at ``address``, by dnspython."""

    def __init__(self, address: str) -> None:
        try:
            from dns import asyncresolver
        except ImportError:
            remedy = "pip install 'enginehouse[dns]'"
            raise ConfigError("the discoverer 'dns' needs dnspython, which is not installed", remedy=remedy) from None
        from dns.resolver import NoResolverConfiguration

        if address:
            host, port = _address(address)
            self._resolver = asyncresolver.Resolver(configure=False)
            self._resolver.nameservers = [host]
            self._resolver.port = port
            return
        try:
            self._resolver = asyncresolver.Resolver()
        except NoResolverConfiguration as error:
            raise ConfigError(f"this machine has no DNS server: {error}", remedy="set resolver") from None
        self._resolver.use_search_by_default = True  # as the system's own: in Kubernetes, "vllm" is a name

    async def addresses(self, name: str) -> list[str]:
        found = await asyncio.gather(*(self._ask(name, kind) for kind in ("A", "AAAA")))
        return [str(record) for records in found for record in records]

    async def servers(self, service: str) -> list[tuple[str, int, int]]:
        records = await self._ask(service, "SRV")
        servers = ((str(each.target).rstrip("."), each.port, each.priority) for each in records)
        return [server for server in servers if server[0]]  # "." says that there is none (RFC 2782)

    async def _ask(self, name: str, kind: str) -> list[Any]:
        from dns.resolver import NXDOMAIN, NoAnswer

        try:
            return list(await self._resolver.resolve(name, kind))
        except (NXDOMAIN, NoAnswer):
            return []


def _address(text: str) -> tuple[str, int]:
    """The address and the port of a DNS server: ``IP``, ``IPv4:PORT`` or ``[IPv6]:PORT``. Raises ``ConfigError``."""
    host, port = text, "53"
    if found := _WITH_PORT.fullmatch(text):
        host, port = found["v6"] or found["v4"], found["port"] or port
    try:
        if not 0 < int(port) < 65536:
            raise ValueError
        return str(ip_address(host)), int(port)
    except ValueError:
        remedy = 'write it as in "10.0.0.1", "10.0.0.1:5353", "fd00::1" or "[fd00::1]:5353"'
        raise ConfigError(f"'{text}' is not the address of a DNS server", key="resolver", remedy=remedy) from None
