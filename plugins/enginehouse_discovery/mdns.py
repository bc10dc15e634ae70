"""The discoverer ``mdns``: servers that announce themselves in the local network (RFC 6762, RFC 6763)."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from enginehouse import ConfigError, Period
from enginehouse.backends import FoundBackend
from enginehouse.runtime import run_within
from enginehouse_kit.discoverers import Discoverer

if TYPE_CHECKING:
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

_FIRST_LOOK_S = 1.0
"""How long the first list waits for an answer. Servers answer within 0.12 s (RFC 6762, section 6)."""
_OTHERS_S = 0.2
"""How long news waits for more: a server under several types answers for each within 0.12 s."""
_DETAILS_MS = 3000
_SERVICE = re.compile(r"_[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?\._tcp")
_SAID = ("driver", "role", "priority", "concurrency")


class MdnsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``services``: the types of services to look for. ``announce``: the type of this gateway's own; ``""`` for none.

    ``driver``, ``scheme`` and ``concurrency`` are those of all backends that do not say otherwise. ``interfaces``: the
    own addresses of the networks to look in; by default, those of all networks.
    """

    services: Sequence[str] = ("_llm._tcp", "_ollama._tcp")
    announce: str = "_enginehouse._tcp"
    driver: str = "openai"
    scheme: Literal["http", "https"] = "http"
    concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    interfaces: Sequence[str] = ()
    interval: Annotated[Period, msgspec.Meta(description="time between two confirmations of the list")] = 5.0


class MdnsDiscoverer(Discoverer):
    """Servers that announce themselves in the local network. The gateway announces itself too."""

    Config: ClassVar[type[MdnsConfig]] = MdnsConfig

    def __init__(self, config: MdnsConfig) -> None:
        if find_spec("zeroconf") is None:
            remedy = "pip install 'enginehouse[mdns]'"
            raise ConfigError("the discoverer 'mdns' needs zeroconf, which is not installed", remedy=remedy)
        for each in (*config.services, config.announce):
            if each and not _SERVICE.fullmatch(each):
                raise ConfigError(f"'{each}' is not a type of services", remedy="write it as in '_llm._tcp'")
        self._config = config
        self._address: tuple[str, int] | None = None

    def serves_at(self, host: str, port: int) -> None:
        self._address = (host, port)

    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        from zeroconf import InterfaceChoice
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        config = self._config
        zeroconf = AsyncZeroconf(interfaces=list(config.interfaces) or InterfaceChoice.All)
        announcing = asyncio.ensure_future(self._announce(zeroconf))
        try:
            found = _Found(zeroconf, config)
            types = [f"{each}.local." for each in config.services]
            AsyncServiceBrowser(zeroconf.zeroconf, types, handlers=[found.changed])
            pause = _FIRST_LOOK_S
            while True:
                with suppress(TimeoutError):
                    await run_within(pause, found.news.wait())  # wait_for may lose the cancellation of a reload
                    await asyncio.sleep(min(_OTHERS_S, config.interval))
                pause = config.interval
                if announcing.done():
                    announcing.result()
                yield await found.backends()
        finally:
            announcing.cancel()
            await zeroconf.async_unregister_all_services()
            await zeroconf.async_close()

    async def _announce(self, zeroconf: AsyncZeroconf) -> None:
        """Announce this gateway where others reach it, under another name if its own is taken."""
        from zeroconf.asyncio import AsyncServiceInfo

        if self._address is None or not self._config.announce:
            return
        host, port = self._address
        if not (addresses := _reachable(host, self._config.interfaces)):
            return
        kind, (name, server) = f"{self._config.announce}.local.", _labels()
        info = AsyncServiceInfo(
            kind,
            f"{name}.{kind}",
            port=port,
            parsed_addresses=addresses,
            properties={"driver": "openai"},
            server=f"{server}.local.",
        )
        await (await zeroconf.async_register_service(info, allow_name_change=True))


class _Service:
    """A service that has announced itself. ``told``: its details are those of its last announcement."""

    def __init__(self) -> None:
        self.backend: FoundBackend | None = None
        self.told = False


class _Found:
    """The services that have announced themselves and have not said goodbye. ``news``: they may have changed."""

    def __init__(self, zeroconf: AsyncZeroconf, config: MdnsConfig) -> None:
        self.news = asyncio.Event()
        self._zeroconf = zeroconf
        self._config = config
        self._services: dict[tuple[str, str], _Service] = {}
        self._names: dict[str, str] = {}

    def changed(self, zeroconf: Any, service_type: str, name: str, state_change: Any) -> None:
        """Note an event of the browser."""
        from zeroconf import ServiceStateChange

        if state_change is ServiceStateChange.Removed:
            self._services.pop((service_type, name), None)
        else:
            self._services.setdefault((service_type, name), _Service()).told = False
        self.news.set()

    async def backends(self) -> dict[str, FoundBackend]:
        """The backends by name: one for each address, as the service of the first type there describes it.

        A backend keeps the name under which it was found first, whichever of its services comes or goes.
        """
        self.news.clear()
        await asyncio.gather(
            *(self._look(*key, service) for key, service in self._services.items() if not service.told)
        )
        order = [f"{each}.local." for each in self._config.services]
        found: dict[str, FoundBackend] = {}
        wanted: dict[str, str] = {}
        for (kind, name), service in sorted(
            self._services.items(), key=lambda each: (order.index(each[0][0]), each[0])
        ):
            if service.backend is not None and service.backend.url not in found:
                url = service.backend.url
                found[url] = service.backend
                wanted[url] = re.sub(r"[^\w.-]+", "-", name.removesuffix(f".{kind}")).strip("-")
        self._names = {url: name for url, name in self._names.items() if url in found}
        for url, name in wanted.items():
            if url not in self._names:
                taken = name in self._names.values()
                self._names[url] = f"{name}-{urlsplit(url).netloc.replace(':', '-')}" if taken else name
        return {self._names[url]: backend for url, backend in found.items()}

    async def _look(self, kind: str, name: str, service: _Service) -> None:
        from zeroconf.asyncio import AsyncServiceInfo

        service.told = True
        info = AsyncServiceInfo(kind, name)
        if not await info.async_request(self._zeroconf.zeroconf, _DETAILS_MS):
            service.told = False
        elif self._zeroconf.zeroconf.registry.async_get_info_name(name) is None:  # it is not this gateway
            service.backend = _backend(info, self._config)


def _backend(info: AsyncServiceInfo, config: MdnsConfig) -> FoundBackend | None:
    """What a service says of itself; ``None`` if it has no address. A word that cannot be read has no effect."""
    from zeroconf import IPVersion

    addresses = info.parsed_scoped_addresses(IPVersion.V4Only) or info.parsed_scoped_addresses(IPVersion.V6Only)
    if not addresses or not info.port:
        return None
    said = {key: text for key, text in info.decoded_properties.items() if text}
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    scheme = said.get("scheme", config.scheme)
    plain = {
        "url": f"{scheme if scheme == 'https' else 'http'}://{host}:{info.port}",
        "driver": config.driver,
        "concurrency": config.concurrency,
        "labels": {"service": info.name},
    }
    models = [model.strip() for model in (said.get("models") or "").split(",") if model.strip()]
    table = plain | {key: said[key] for key in _SAID if key in said} | ({"models": models} if models else {})
    try:
        return msgspec.convert(table, FoundBackend, strict=False)
    except msgspec.ValidationError as error:
        return msgspec.convert({**plain, "labels": {"service": info.name, "ignored": str(error)}}, FoundBackend)


def _labels() -> tuple[str, str]:
    """The name of this gateway's service, and of its server. A label has 63 bytes at most (RFC 1035)."""
    host = socket.gethostname().partition(".")[0]
    return f"enginehouse on {host}"[:63], f"enginehouse-{host}"[:63]


def _reachable(host: str, interfaces: Sequence[str]) -> list[str]:
    """The addresses at which the neighbours in ``interfaces`` reach a server that listens at ``host``."""
    listening = ip_address(host)
    if listening.is_unspecified:
        return list(interfaces) or [each for each in _own_addresses() if not ip_address(each).is_loopback]
    return [] if listening.is_loopback and host not in interfaces else [host]


def _own_addresses() -> list[str]:
    from ifaddr import get_adapters  # zeroconf needs it

    return [str(each.ip) for adapter in get_adapters() for each in adapter.ips if each.is_IPv4]
