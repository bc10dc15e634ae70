"""The limits of each client address."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import msgspec

from enginehouse.api.callers import CallerLimits, KeyHolder, Reservation
from enginehouse.config.auth import KeySettings, LimitAmounts
from enginehouse.config.schema import ServerSettings
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements

_MOST_ADDRESSES = 10_000
"""The most addresses whose limits are kept, the last used ones."""
_FORWARDED = b"x-forwarded-for"


class AddressLimits:
    """Counts what each client address uses. Behind ``server.trusted_proxies``, the proxies name the address."""

    def __init__(self, settings: ServerSettings, limits: CallerLimits) -> None:
        self._limits = limits
        self._holders: dict[str, KeyHolder] = {}
        self.configure(settings)

    def configure(self, settings: ServerSettings) -> None:
        """Apply other settings. Counts stay."""
        self._amounts = settings.per_address or LimitAmounts()
        self._proxies = [ip_network(each, strict=False) for each in settings.trusted_proxies]
        for address, holder in self._holders.items():
            holder.configure(_settings(address, self._amounts))

    def admit(
        self, address: str, headers: Headers, requirements: Requirements, answer_limit: int | None
    ) -> Reservation | None:
        """Count a request in. Raises ``RateLimited``."""
        return self._holder(self._client(address, headers)).admit(requirements, answer_limit)

    def _holder(self, address: str) -> KeyHolder:
        holder = self._holders.pop(address, None)  # so that the last used ones are at the end
        if holder is None:
            holder = KeyHolder(_settings(address, self._amounts), self._limits, f"Address {address or 'unknown'}")
            if len(self._holders) >= _MOST_ADDRESSES:
                del self._holders[next(iter(self._holders))]
        self._holders[address] = holder
        return holder

    def _client(self, address: str, headers: Headers) -> str:
        """The last address on the way here that no trusted proxy has."""
        way = [part.strip().decode("latin-1") for part in _forwarded(headers) if part.strip()]
        while way and self._is_proxy(address):
            address = way.pop()
        return address

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in each for each in self._proxies)


def _forwarded(headers: Headers) -> Sequence[bytes]:
    return b",".join(value for name, value in headers if name == _FORWARDED).split(b",")


def _settings(address: str, amounts: LimitAmounts) -> KeySettings:
    return KeySettings(name=f"address/{address}", key="", **msgspec.structs.asdict(amounts))
