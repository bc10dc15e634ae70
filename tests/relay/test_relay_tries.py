from __future__ import annotations

from enginehouse.relay.tries import Tries


def test_a_replica_that_failed_is_not_asked_again() -> None:
    once = Tries().elsewhere("a", 2)
    assert once == Tries(failed=("a",))
    assert once is not None
    assert once.elsewhere("b", 2) == Tries(failed=("a", "b"))


def test_a_replica_whose_engine_ended_is_asked_once_more() -> None:
    once = Tries().resend("a", 5)
    assert once == Tries(resent=("a",))
    assert once is not None
    assert once.resend("a", 5) is None
    assert once.resend("b", 5) == Tries(resent=("a", "b"))


def test_both_count_as_retries() -> None:
    once = Tries().resend("a", 2)
    assert once is not None
    twice = once.elsewhere("a", 2)
    assert twice == Tries(failed=("a",), resent=("a",))
    assert twice is not None
    assert twice.elsewhere("b", 2) is None
    assert twice.resend("b", 2) is None
    assert Tries().elsewhere("a", 0) is None
    assert Tries().resend("a", 0) is None


def test_what_was_not_sent_yet_goes_back_to_routing_often_but_not_for_ever() -> None:
    tries: Tries | None = Tries(failed=("b",), resent=("c",))
    times = 0
    while tries is not None:
        assert (tries.failed, tries.resent) == (("b",), ("c",))
        tries, times = tries.send_back(), times + 1
    assert times == 11
