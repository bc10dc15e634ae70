"""Client addresses have limits of their own."""

from __future__ import annotations

import pytest

from enginehouse.config.auth import LimitAmounts
from enginehouse.config.schema import ServerSettings
from enginehouse.errors import RateLimited
from enginehouse_callers.accounts import CallerLimits
from enginehouse_callers.address_limits import AddressLimits
from enginehouse_callers.prices import Prices
from enginehouse_callers.shared_limits import LimitMemory, SharedLimitStore
from enginehouse_kit.testing import create, requirements


def limits(*proxies: str, rate: int = 1) -> AddressLimits:
    settings = ServerSettings(per_address=LimitAmounts(requests_per_minute=rate), trusted_proxies=list(proxies))
    return AddressLimits(settings, CallerLimits(create("limit_store", "memory"), Prices({})))


def admit(limits: AddressLimits, address: str, forwarded: bytes = b"") -> bool:
    headers = [(b"x-forwarded-for", forwarded)] if forwarded else []
    try:
        limits.admit(address, headers, requirements(), None)
    except RateLimited:
        return False
    return True


def test_each_address_has_its_own_limit() -> None:
    addresses = limits()

    assert [admit(addresses, address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2")] == [True, False, True]


@pytest.mark.parametrize(
    ("proxies", "peer", "forwarded", "client"),
    [
        ((), "10.0.0.1", b"1.1.1.1", "10.0.0.1"),
        (("10.0.0.0/8",), "10.0.0.1", b"1.1.1.1", "1.1.1.1"),
        (("10.0.0.0/8",), "10.0.0.1", b"6.6.6.6, 1.1.1.1, 10.0.0.2", "1.1.1.1"),
        (("10.0.0.0/8",), "10.0.0.1", b"", "10.0.0.1"),
        (("10.0.0.0/8",), "9.9.9.9", b"1.1.1.1", "9.9.9.9"),
    ],
)
def test_only_trusted_proxies_name_the_client(
    proxies: tuple[str, ...], peer: str, forwarded: bytes, client: str
) -> None:
    addresses = limits(*proxies)

    assert admit(addresses, peer, forwarded)
    assert admit(addresses, "192.0.2.1")
    assert not admit(addresses, client)


def test_addresses_take_no_place_from_keys() -> None:
    store = SharedLimitStore(LimitMemory(1), 0)
    settings = ServerSettings(per_address=LimitAmounts(requests_per_minute=1))
    assert admit(AddressLimits(settings, CallerLimits(store, Prices({}))), "10.0.0.1")
    assert [passing for *_, passing in store.kept()] == [True]


def test_a_reload_keeps_what_was_counted() -> None:
    addresses = limits()
    admit(addresses, "10.0.0.1")

    addresses.configure(ServerSettings(per_address=LimitAmounts(requests_per_minute=2)))

    assert [admit(addresses, "10.0.0.1") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7:5000", "192.0.2.7:6000", True),
        ("[2001:db8:0:1::1]:5000", "2001:db8:0:1::9", True),
        ("unknown", "hidden", False),
    ],
)
def test_a_client_is_an_address_of_ipv4_or_a_network_of_ipv6(first: str, second: str, is_same: bool) -> None:
    addresses = limits("10.0.0.0/8")

    assert admit(addresses, "10.0.0.1", first.encode())
    assert admit(addresses, "10.0.0.1", second.encode()) != is_same
