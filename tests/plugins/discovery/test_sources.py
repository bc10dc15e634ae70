"""What discoverers found, and what the gateway shall serve of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from enginehouse.backends import DiscoverySettings, FoundBackend
from enginehouse_discovery.service import Discovery, Source, Sources
from enginehouse_kit.discoverers import Discoverer

A, B = FoundBackend(url="http://a:1"), FoundBackend(url="http://b:1")


def sources(*names: str, **settings: Any) -> Sources:
    found = Sources()
    for name in names:
        found.by_name[name] = Source(name, DiscoverySettings(type="static", **settings))
    return found


def lists(found: Sources, source: str, **backends: FoundBackend) -> bool:
    return found.listed(found.by_name[source], backends, now=1.0)


def test_found_backends_get_a_prefix_and_leave_again() -> None:
    found = sources("lab", "cloud")
    assert lists(found, "lab", a=A)
    assert lists(found, "cloud", a=B)
    assert found.wanted() == {"lab-a": A, "cloud-a": B}
    assert not lists(found, "lab", a=A)
    assert lists(found, "lab")
    assert found.wanted().keys() == {"lab-a", "cloud-a"}
    assert found.draining() == {"lab-a"}
    del found.leaving["lab-a"]
    assert found.wanted() == {"cloud-a": B}


def test_a_backend_that_returns_is_no_longer_leaving() -> None:
    found = sources("lab")
    for backends in ({"a": A}, {}, {"a": A}):
        lists(found, "lab", **backends)
    assert found.wanted() == {"lab-a": A}
    assert not found.draining()


def test_a_removed_source_drains() -> None:
    found = sources("lab")
    lists(found, "lab", a=A)
    found.remove("lab")
    assert found.wanted() == {"lab-a": A}
    assert found.draining() == {"lab-a"}


def test_nobody_waits_for_a_removed_source() -> None:
    """A reload while the gateway starts."""
    found = sources("lab")
    source = found.by_name["lab"]
    found.remove("lab")
    assert source.has_begun.is_set()


def test_what_the_gateway_refuses_has_its_reason_and_never_drains() -> None:
    found = sources("lab")
    lists(found, "lab", good=A, bad=FoundBackend(url="ftp://x:1", draining=True))
    found.note_refused({"lab-bad": "its url is not the address of a server"})
    assert found.by_name["lab"].problem == "lab-bad: its url is not the address of a server"
    assert not found.draining()
    lists(found, "lab", good=A)
    found.note_refused({})
    assert found.by_name["lab"].problem == ""
    assert not found.draining(), "it was never in force"


def test_of_two_backends_with_one_name_the_first_counts() -> None:
    found = sources("lab", "cloud", prefix="")
    lists(found, "lab", a=A)
    lists(found, "cloud", a=B)
    assert found.wanted() == {"a": A}
    found.note_refused({})
    assert found.by_name["cloud"].problem == "a: there is a backend of this name already; set another 'prefix'"
    lists(found, "cloud")
    assert not found.draining(), "what the second one withdraws is not in force"
    lists(found, "cloud", a=B)
    lists(found, "lab")
    assert found.wanted() == {"a": B}
    assert not found.draining()


def test_a_source_gives_its_key_to_backends_without_one() -> None:
    found = sources("lab", api_key="secret")
    lists(found, "lab", a=A, b=FoundBackend(url="http://b:1", api_key="own"))
    assert [each.api_key for each in found.wanted().values()] == ["secret", "own"]


def test_a_backend_may_drain_before_it_leaves() -> None:
    found = sources("lab")
    lists(found, "lab", a=FoundBackend(url="http://a:1", draining=True))
    assert found.draining() == {"lab-a"}


class Exits(Discoverer):
    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        raise SystemExit("gone")
        yield {}


async def test_a_discoverer_that_exits_ends_nothing_but_its_list() -> None:
    source = Source("x", DiscoverySettings(type="exits"))
    assert await Discovery()._watch(source, Exits()) == "SystemExit: gone"
