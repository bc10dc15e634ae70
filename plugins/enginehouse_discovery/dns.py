"""The discoverer ``dns``: the addresses of a name, or the servers of a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from enginehouse import ConfigError, Discoverer, FoundBackend, Period


class DnsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name``: a host, each of whose addresses serves at ``port``. Or ``service``: the name of SRV records.

    ``driver``, ``scheme`` and ``concurrency`` are those of all backends; ``resolver``: the address of a DNS server.
    """

    name: str = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    service: str = ""
    driver: str = "openai"
    scheme: Literal["http", "https"] = "http"
    concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    resolver: str = ""
    interval: Annotated[Period, msgspec.Meta(description="time between two questions")] = 5.0


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
    """Asks the resolver of this machine, or the one at ``address`` (``IP`` or ``IP:PORT``), by dnspython."""

    def __init__(self, address: str) -> None:
        try:
            from dns import asyncresolver
        except ImportError:
            remedy = "pip install 'enginehouse[dns]'"
            raise ConfigError("the discoverer 'dns' needs dnspython, which is not installed", remedy=remedy) from None
        self._resolver = asyncresolver.Resolver(configure=not address)
        if address:
            host, _, port = address.partition(":")
            self._resolver.nameservers = [host]
            self._resolver.port = int(port or 53)

    async def addresses(self, name: str) -> list[str]:
        found = await asyncio.gather(*(self._ask(name, kind) for kind in ("A", "AAAA")))
        return [str(record) for records in found for record in records]

    async def servers(self, service: str) -> list[tuple[str, int, int]]:
        records = await self._ask(service, "SRV")
        return [(str(each.target).rstrip("."), each.port, each.priority) for each in records]

    async def _ask(self, name: str, kind: str) -> list[Any]:
        from dns.resolver import NXDOMAIN, NoAnswer

        try:
            return list(await self._resolver.resolve(name, kind))
        except (NXDOMAIN, NoAnswer):
            return []
