"""A key that another gateway has: its requests say whose they are."""

from __future__ import annotations

import pytest

from enginehouse.config.schema import KeySettings
from enginehouse.domain.errors import RateLimited
from enginehouse.domain.requirements import Requirements
from enginehouse.http.admission import Authentication
from enginehouse.relay.heads import Behalf, read_behalf
from enginehouse_callers.keyring import Keyring
from tests.support.fake_clock import StoppedClock
from tests.support.keys import asking
from tests.support.served_gateway import limits_at

EDGE = KeySettings(name="edge", key="secret", gateway=True, admin=True, requests_per_minute=2)
AUTH = (b"authorization", b"Bearer secret")


def told(caller: str, priority: int) -> list[tuple[bytes, bytes]]:
    lines = Behalf(caller, priority).lines().split(b"\r\n")[:-1]
    pairs = [line.split(b": ", 1) for line in lines]
    return [AUTH, *((name, value) for name, value in pairs)]


@pytest.mark.parametrize(("caller", "priority"), [("ann", 5), ("änn, of us", -3), ("x" * 100, 0)])
def test_what_one_gateway_tells_the_next_one_reads(caller: str, priority: int) -> None:
    assert read_behalf(told(caller, priority)) == Behalf(caller, priority)


@pytest.mark.parametrize("value", [b"", b"x" * 2000])
def test_a_name_that_is_none_is_ignored(value: bytes) -> None:
    assert read_behalf([(b"x-enginehouse-caller", value)]) is None


def test_a_priority_that_is_no_number_is_none() -> None:
    assert read_behalf([(b"x-enginehouse-caller", b"a"), (b"x-enginehouse-priority", b"high")]) == Behalf("a", 0)


def test_the_caller_and_the_priority_are_the_others_and_the_limits_are_the_keys() -> None:
    keys = ring(EDGE)
    ann, bob = keys.caller(told("ann", 5)), keys.caller(told("bob", 1))
    assert ann is not None
    assert bob is not None
    assert (ann.name, ann.priority, ann.admin) == ("ann", 5, False)
    assert keys.caller(told("ann", 5)) is ann
    ann.admit(Requirements(model="m"), None)
    bob.admit(Requirements(model="m"), None)
    with pytest.raises(RateLimited, match="edge"):
        ann.admit(Requirements(model="m"), None)


def test_other_keys_may_not_say_whose_their_requests_are() -> None:
    keys = ring(KeySettings(name="plain", key="secret"))
    caller = keys.caller(told("ann", 5))
    assert caller is not None
    assert (caller.name, caller.priority) == ("plain", 0)


def ring(key: KeySettings) -> Authentication:
    return asking(Keyring([key], limits_at(StoppedClock(1000.0))))
