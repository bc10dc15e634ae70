"""The limits of each client address."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

from enginehouse.api.callers import Account, CallerLimits, Reservation
from enginehouse.config.auth import LimitAmounts
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
        self._accounts: dict[str, Account] = {}
        self.configure(settings)

    def configure(self, settings: ServerSettings) -> None:
        """Apply other settings. Counts stay."""
        self._amounts = settings.per_address or LimitAmounts()
        self._proxies = [ip_network(each, strict=False) for each in settings.trusted_proxies]
        for account in self._accounts.values():
            account.configure(self._amounts)

    def admit(
        self, address: str, headers: Headers, requirements: Requirements, answer_limit: int | None
    ) -> Reservation | None:
        """Count a request in. Raises ``RateLimited``."""
        return self._account(self._client(address, headers)).admit(requirements, answer_limit)

    def _account(self, address: str) -> Account:
        account = self._accounts.pop(address, None)  # so that the last used ones are at the end
        if account is None:
            account = Account(f"address/{address}", self._limits, f"Address {address or 'unknown'}")
            account.configure(self._amounts)
            if len(self._accounts) >= _MOST_ADDRESSES:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[address] = account
        return account

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
