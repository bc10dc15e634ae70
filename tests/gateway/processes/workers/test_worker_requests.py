"""Requests of workers, as the owner shows them."""

from __future__ import annotations

from msgspec.structs import replace

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.app.services.service_access import _SeenRequest
from enginehouse.domain.replica import Candidate, Reason, Route
from enginehouse.domain.request_record import AttemptRecord
from enginehouse.processes.workers.channel import Channel
from enginehouse.processes.workers.worker_request import WorkerRequest
from enginehouse.relay.live.live_state import LiveState

_ATTEMPT = AttemptRecord(
    backend="a",
    driver="vllm",
    replica="m@a",
    model="m",
    reason=Reason.MATCH,
    attempted=("m",),
    outcome="live",
    why="",
    status=0,
    queued=False,
    began=10.0,
    granted=None,
    sent=10.5,
    first_byte=None,
    ended=11.0,
)


def test_the_route_changes_only_when_the_request_goes_elsewhere() -> None:
    """Rescheduling counts a request that engines have moved at its destination for as long as its route is the same."""
    first = _state("m@a", 1)
    request = WorkerRequest(first, Channel(lambda: None))
    request.renew(first, _place, None)
    route = request.route
    assert route is not None

    request.renew(_state("m@a", 1), _place, None)
    assert request.route is route
    request.renew(_state("m@b", 2), _place, None)
    assert request.route is not None
    assert request.route.chosen.replica == "m@b"
    again = request.route
    request.renew(_state("m@b", 3), _place, None)
    assert request.route is not again, "its engine has exited, and another process serves it"


def _state(replica: str, count: int) -> LiveState:
    attempts = tuple(_ATTEMPT for _ in range(count))
    return LiveState(id=b"r1", path="/v1/completions", replica=replica, model="m", attempts=attempts)


def _place(state: LiveState) -> Route | None:
    assert state.replica is not None
    backend = state.replica.partition("@")[2]
    return Route("m", Candidate(model="m", backend=backend, replica=state.replica), Reason.MATCH, ("m",))


def test_services_see_that_a_request_waits_in_the_room_of_its_worker() -> None:
    request = WorkerRequest(LiveState(id=b"1", path="/v1/chat/completions"), Channel(lambda: None))

    def waits(state: LiveState) -> bool:
        request.renew(state, lambda _: None, None)
        return _SeenRequest(request, set(), SYSTEM_CLOCK).waits

    state = LiveState(id=b"1", path="/v1/chat/completions", model="m")
    assert [waits(replace(state, position=0)), waits(state)] == [True, False]
