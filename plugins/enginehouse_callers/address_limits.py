"""The limits of each client address."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from enginehouse import Headers, Requirements
from enginehouse.callers import LimitAmounts, ServerSettings
from enginehouse.requests import kept_name
from enginehouse_callers.accounts import Account, CallerLimits, Reservation
from enginehouse_callers.limit_set import LimitSet, named_limits

_FORWARDED = b"x-forwarded-for"
_NETWORK_BITS = 64
"""Of IPv6 addresses, a client has all that begin with the same ones (RFC 6177)."""
_MOST_KNOWN = 1024


class AddressLimits:
    """Counts what each client address uses. Behind ``server.trusted_proxies``, the proxies name the address."""

    def __init__(self, settings: ServerSettings, limits: CallerLimits) -> None:
        self._limits = limits
        self._all = Account("address", limits, "All addresses", passing=True)
        self.configure(settings)

    def configure(self, settings: ServerSettings) -> None:
        """Apply other settings. Counts stay."""
        amounts = settings.per_address or LimitAmounts()
        self._all.configure(amounts)
        self._named = named_limits(amounts)
        self._proxies = [ip_network(each, strict=False) for each in settings.trusted_proxies]

    def admit(
        self, address: str, headers: Headers, requirements: Requirements, answer_limit: int | None
    ) -> Reservation | None:
        """Count a request in. Raises ``RateLimited``."""
        if self._all.is_free:
            return None
        client = client_network(kept_name(self._client(address, headers)))
        owner = f"Address {client or 'unknown'}"
        own = LimitSet(f"address/{client}", owner, self._named, self._limits.store, passing=True)
        return self._all.reserve([own], requirements, answer_limit)

    def _client(self, address: str, headers: Headers) -> str:
        """The last address on the way here that no trusted proxy has."""
        way = [part.strip().decode("latin-1") for part in _forwarded(headers) if part.strip()]
        while way and self._is_proxy(address):
            address = way.pop()
        return address

    def _is_proxy(self, address: str) -> bool:
        found = _read(address)
        return found is not None and any(found in each for each in self._proxies)


@lru_cache(_MOST_KNOWN)
def client_network(address: str) -> str:
    """What one client has: an IPv4 address, or the first half of one of IPv6. Other texts stay."""
    found = _read(address)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((int(found), _NETWORK_BITS), strict=False))
    return address if found is None else str(found)


def _read(address: str) -> IPv4Address | IPv6Address | None:
    """An address, which may stand with a port, as some proxies write it; ``None`` for another text."""
    if address.startswith("["):
        address = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        address = address.partition(":")[0]
    try:
        found = ip_address(address)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _forwarded(headers: Headers) -> Sequence[bytes]:
    return b",".join(value for name, value in headers if name == _FORWARDED).split(b",")
