"""Retry decisions as a state machine: what failed, what happened before, what follows."""

from __future__ import annotations

import pytest

from enginehouse import Candidate, Route
from enginehouse.errors import LoadFailed, QueueFull, ReplicaLost, UpstreamError, UpstreamTimeout
from enginehouse.relay.retries import (
    FailedAttempt,
    FindRoute,
    Otherwise,
    Outcome,
    RetryDecision,
    RetryState,
    SendAgain,
    decide,
)
from enginehouse.routing_facts import Reason

UNTRIED = RetryState()
REPLICAS = ("m@a", "m@b", "m@c")


def among(*replicas: str) -> FindRoute:
    """Finds a route to the first of ``replicas`` that has not failed."""

    def find_route(failed: tuple[str, ...]) -> tuple[Route, bytes] | None:
        for replica in replicas:
            if replica not in failed:
                chosen = Candidate(model="m", backend=replica[2:], replica=replica)
                return Route("m", chosen, Reason.RETRY, ("m",)), replica.encode()
        return None

    return find_route


_SENT_BACK = (Outcome.REPLICA_LOST, Outcome.JOINED_LOAD_FAILED, Outcome.NOT_LOADED)
"""No engine worked on the request, so it may wait for the same one again."""


def after(
    outcome: Outcome,
    state: RetryState = UNTRIED,
    *,
    replica: str = "m@a",
    replicas: tuple[str, ...] = REPLICAS,
    max_retries: int = 2,
    sent: bool = True,
    repeatable: bool = True,
    launched: bool = False,
    in_budget: bool = True,
) -> RetryDecision:
    attempt = FailedAttempt(outcome, replica, sent=sent, repeatable=repeatable, launched=launched)
    return decide(attempt, state, max_retries, among(*replicas), in_budget=in_budget)


def following(decision: RetryDecision) -> tuple[str, RetryState]:
    """Where a request is sent again, and the state it has then."""
    assert isinstance(decision, SendAgain)
    assert decision.body == decision.route.chosen.replica.encode()
    return decision.route.chosen.replica, decision.state


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.TIMED_OUT, Outcome.BROKEN, Outcome.REJECTED])
@pytest.mark.parametrize("launched", [True, False])
def test_a_replica_that_failed_is_replaced_and_not_asked_again(outcome: Outcome, launched: bool) -> None:
    replica, state = following(after(outcome, launched=launched))
    assert (replica, state) == ("m@b", RetryState(failed=("m@a",)))
    replica, state = following(after(outcome, state, replica=replica, launched=launched))
    assert (replica, state) == ("m@c", RetryState(failed=("m@a", "m@b")))


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("launched", [True, False])
def test_without_another_route_a_request_is_not_sent_again_unless_its_engine_may_run_again(
    outcome: Outcome, launched: bool
) -> None:
    decision = after(outcome, replicas=("m@a",), launched=launched)
    if outcome in _SENT_BACK or (outcome is Outcome.EXITED and launched):
        assert following(decision)[0] == "m@a"
    elif outcome is Outcome.BROKEN and launched:
        assert decision is Otherwise.FIND_OUT
    else:
        assert decision is Otherwise.FAIL


def test_after_the_load_that_a_request_joined_it_has_one_of_its_own_if_nothing_else_serves() -> None:
    assert following(after(Outcome.JOINED_LOAD_FAILED, sent=False)) == ("m@b", RetryState(failed=("m@a",)))
    replica, state = following(after(Outcome.JOINED_LOAD_FAILED, sent=False, max_retries=0))
    assert (replica, state) == ("m@a", RetryState(reloaded=True))
    assert after(Outcome.JOINED_LOAD_FAILED, state, sent=False, max_retries=0) is Otherwise.FAIL


@pytest.mark.parametrize("outcome", [each for each in Outcome if each not in _SENT_BACK])
def test_no_more_retries_than_allowed(outcome: Outcome) -> None:
    for state in (RetryState(failed=("m@x", "m@y")), RetryState(("m@x",), ("m@y",)), RetryState(resent=("m@x", "m@y"))):
        assert state.retries == 2
        assert after(outcome, state, launched=True) is Otherwise.FAIL
    assert after(outcome, max_retries=0, launched=True) is Otherwise.FAIL


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.TIMED_OUT, Outcome.BROKEN, Outcome.EXITED])
@pytest.mark.parametrize("launched", [True, False])
def test_what_may_not_reach_an_engine_twice_is_not_sent_again(outcome: Outcome, launched: bool) -> None:
    assert after(outcome, repeatable=False, launched=launched) is Otherwise.FAIL


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.BROKEN, Outcome.REJECTED])
def test_what_was_not_sent_yet_may_go_elsewhere_even_then(outcome: Outcome) -> None:
    assert following(after(outcome, sent=False, repeatable=False)) == ("m@b", RetryState(failed=("m@a",)))


def test_another_replica_is_asked_rather_than_to_find_out_whether_the_engine_exited() -> None:
    assert following(after(Outcome.BROKEN, launched=True))[0] == "m@b"


def test_a_replica_whose_engine_exited_with_the_request_is_asked_once_more() -> None:
    replica, state = following(after(Outcome.EXITED, launched=True, max_retries=5))
    assert (replica, state) == ("m@a", RetryState(resent=("m@a",)))
    assert after(Outcome.EXITED, state, launched=True, max_retries=5) is Otherwise.FAIL
    replica, state = following(after(Outcome.EXITED, state, replica="m@b", launched=True, max_retries=5))
    assert state == RetryState(resent=("m@a", "m@b"))
    assert after(Outcome.BROKEN, state, replicas=("m@a",), launched=True, max_retries=3) is Otherwise.FAIL


def test_what_was_not_sent_to_an_engine_that_exited_goes_back_without_a_retry() -> None:
    assert after(Outcome.BROKEN, replicas=("m@a",), sent=False, launched=True, max_retries=0) is Otherwise.FIND_OUT
    replica, state = following(after(Outcome.EXITED, sent=False, launched=True, max_retries=0))
    assert (replica, state, state.retries) == ("m@a", RetryState(sent_back=1), 0)


def test_a_request_that_waits_for_a_lost_replica_goes_back_ten_times_and_then_elsewhere() -> None:
    state = RetryState(failed=("m@c",), resent=("m@b",))
    for times in range(1, 11):
        replica, state = following(after(Outcome.REPLICA_LOST, state, sent=False, launched=True, max_retries=3))
        assert (replica, state) == ("m@a", RetryState(("m@c",), ("m@b",), times))
    lost = after(Outcome.REPLICA_LOST, state, sent=False, launched=True, max_retries=3)
    assert following(lost) == ("m@b", RetryState(("m@c", "m@a"), ("m@b",), 10))
    assert after(Outcome.REPLICA_LOST, state, sent=False, launched=True) is Otherwise.FAIL


def test_outcomes_follow_from_errors() -> None:
    assert Outcome.of_engine(UpstreamTimeout("late")) is Outcome.TIMED_OUT
    assert Outcome.of_engine(UpstreamError("broke off")) is Outcome.BROKEN
    assert Outcome.of_queue(ReplicaLost("m@a")) is Outcome.REPLICA_LOST
    assert Outcome.of_queue(LoadFailed("no memory")) is Outcome.REJECTED
    assert Outcome.of_queue(QueueFull("full")) is Outcome.REJECTED
    assert Outcome.of_queue(LoadFailed("no memory"), joined_load=True) is Outcome.JOINED_LOAD_FAILED
    assert Outcome.of_queue(ReplicaLost("m@a"), joined_load=True) is Outcome.REPLICA_LOST


def test_no_engine_process_gets_a_request_more_than_twice() -> None:
    state = RetryState(stale=("m@a",))
    assert after(Outcome.BROKEN, state, replicas=("m@a",)) is Otherwise.FAIL
    resent = after(Outcome.EXITED, state, replicas=("m@a",), launched=True)
    assert isinstance(resent, SendAgain)
    assert resent.state.asked_twice("m@a"), "and not on a kept connection"
    assert after(Outcome.EXITED, resent.state, replicas=("m@a",), launched=True) is Otherwise.FAIL


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.TIMED_OUT])
def test_without_a_budget_work_is_not_done_twice(outcome: Outcome) -> None:
    assert after(outcome, in_budget=False) is Otherwise.SPENT
    assert after(outcome, in_budget=False, replicas=("m@a",)) is Otherwise.FAIL
    assert following(after(outcome, in_budget=False, sent=False))[0] == "m@b"


@pytest.mark.parametrize("outcome", [Outcome.BROKEN, Outcome.EXITED])
def test_the_first_time_that_an_engine_is_lost_needs_no_budget(outcome: Outcome) -> None:
    where, state = following(after(outcome, in_budget=False, launched=True))
    assert where == ("m@a" if outcome is Outcome.EXITED else "m@b")
    assert after(Outcome.BROKEN, state, replica="m@b", in_budget=False) is Otherwise.SPENT


@pytest.mark.parametrize("outcome", [Outcome.REPLICA_LOST, Outcome.REJECTED, Outcome.JOINED_LOAD_FAILED])
def test_what_no_engine_had_needs_no_budget(outcome: Outcome) -> None:
    assert isinstance(after(outcome, sent=False, in_budget=False), SendAgain)


def test_a_request_whose_model_was_not_loaded_goes_back_to_it_without_a_retry() -> None:
    replica, state = following(
        after(Outcome.NOT_LOADED, launched=True, max_retries=0, repeatable=False, in_budget=False)
    )
    assert (replica, state, state.retries) == ("m@a", RetryState(sent_back=1), 0)
    assert after(Outcome.NOT_LOADED, RetryState(sent_back=10), launched=True) is Otherwise.FAIL
