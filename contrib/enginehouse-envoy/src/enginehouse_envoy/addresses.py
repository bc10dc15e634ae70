"""The literal addresses of engines: Envoy connects to no name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from enginehouse import ConfigError
from enginehouse.errors import UpstreamError

Address = tuple[str, int]


class Addresses:
    """Knows the IP addresses of host names, as they were when ``refresh`` last asked for them."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._texts: dict[Address, str] = {}

    def text(self, addresses: Sequence[Address]) -> str | None:
        """The ``addresses`` as ``ip:port,ip:port``; ``None`` if the first one's name has not been looked up yet."""
        texts = self._texts
        if len(addresses) == 1:
            return texts.get(addresses[0]) or self._literal(addresses[0]) or None
        found = [texts.get(each) or self._literal(each) for each in addresses]
        return ",".join(each for each in found if each) if found[0] else None

    async def looked_up(self, addresses: Sequence[Address]) -> str:
        """As ``text``, after a look-up of the first name. Raises ``UpstreamError`` if it leads nowhere."""
        host = addresses[0][0]
        await self._look_up(host)
        if (text := self.text(addresses)) is None:
            raise UpstreamError(f"The name '{host}' of an engine leads to no address")
        return text

    def names(self, among: Iterable[str]) -> set[str]:
        """``among``, addresses with or without ports, and the same with the names that lead there."""
        wanted = set(among)
        for name, literal in self._known.items():
            for each in tuple(wanted):
                host, port = split(each)
                if host == literal:
                    wanted.add(f"{name}:{port}" if port else name)
        return wanted

    async def refresh(self, urls: Iterable[str]) -> None:
        """Look up the names in ``urls``."""
        names = {urlsplit(url).hostname or "" for url in urls}
        await asyncio.gather(*(self._look_up(name) for name in names if name and not _is_literal(name)))

    def _literal(self, address: Address) -> str:
        host, port = address
        literal = host if _is_literal(host) else self._known.get(host, "")
        if not literal:
            return ""
        self._texts[address] = text = f"[{literal}]:{port}" if ":" in literal else f"{literal}:{port}"
        return text

    async def _look_up(self, name: str) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:  # what was known stays in force
            return
        literals = [str(each[4][0]) for each in found]
        if self._known.get(name) not in literals:
            self._known[name] = next((each for each in literals if ":" not in each), literals[0])
            self._texts.clear()


def split(address: str) -> tuple[str, str]:
    """The host and the port of ``ip``, ``ip:port`` or ``[ip]:port``; no port is empty."""
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        return host, port.lstrip(":")
    if address.count(":") > 1:
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def check_urls(urls: Iterable[str]) -> None:
    """Raise ``ConfigError`` for an address that ``ip:port`` cannot say."""
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.path.rstrip("/"):
            remedy = "let Envoy's cluster speak TLS or rewrite the path, and configure http://HOST:PORT here"
            raise ConfigError(f"Envoy gets an IP address and a port, which cannot express {url}", remedy=remedy)


@lru_cache(maxsize=4096)
def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
