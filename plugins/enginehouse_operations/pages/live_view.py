"""The current state of replicas, backends and live requests, as operators see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from enginehouse import AttemptRecord, Candidate, Health, ReplicaState, RequestError
from enginehouse.backends import BackendStatus
from enginehouse.domain.explanation import ExplainedCandidate
from enginehouse.domain.request_facts import Activity
from enginehouse.http.page_facts import OperatedGateway
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse.routing_facts import AT_REST
from enginehouse.tickets import Phase

RequestProgress = tuple[Phase, int | None]
"""The phase of a live request, and its position in the queue if it waits there."""
_SHOWN_FACTS = ("backend", "replica", "model", "reason", "attempted", "outcome", "why", "status", "prefix")
_SHOWN_TIMES = ("began", "granted", "sent", "first_byte", "ended")
"""What operators see of an attempt."""
_MOST_PROGRESS = 0.99
"""Of a load that takes longer than the last one did."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator should know first about a replica.

    ``word``: ``ready``, ``downloading``, ``placing`` (waiting for resources of a cluster), ``loading``,
    ``waiting for room``, ``sleeping``, ``stopped``, ``stopping``, ``draining``, ``failed``, ``unreachable``,
    ``unknown`` (not probed yet) or ``refused`` (its engine refuses this model).
    """

    word: str
    why: str | None = None
    """The last error, of one in trouble; how far a download is."""
    since: float | None = None
    """When that began, in seconds since the Unix epoch, if the gateway has seen it begin."""
    progress: float | None = None
    """How much of a load has passed, from 0 to 1, if it takes as long as the last one did."""


class LiveView:
    """Reads the relay and the hosts on each call; stores nothing."""

    def __init__(self, gateway: OperatedGateway) -> None:
        self._relay = gateway.relay
        self._engines = gateway.engines

    def replicas(self) -> Sequence[Candidate]:
        return [each for candidates in self._relay.context.fleet.snapshot.models.values() for each in candidates]

    def status_rows(self) -> Sequence[Mapping[str, Any]]:
        """Every replica with its condition, its memory, its slots, and the requests that wait for it."""
        fleet, now = self._relay.context.fleet, self._relay.context.clock.epoch()
        backends = {each.name: each for each in fleet.backends()}
        waiting = self._relay.waiting_by_replica(self._engines.waiting())
        sizes = {name: size for each in self._engines.memory() for name, size in each.replicas.items()}
        return [
            replica(each)
            | {
                "suspect": each.suspect,
                "capabilities": each.capabilities,
                "condition": condition(
                    each,
                    backends[each.backend],
                    waiting=waiting[each.replica],
                    changed_at=fleet.changed_at(each),
                    now=now,
                ),
                "memory": sizes.get(each.replica),
                "slots": each.load.slots or None,
                "waiting": waiting[each.replica],
            }
            for each in self.replicas()
            if each.backend in backends
        ]

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every live request, oldest first."""
        now = self._relay.context.clock.now()
        return [
            _request(exchange.state(), progress, now) | {"progress": self._how_far(exchange, progress)}
            for exchange, progress in self._live_requests()
        ]

    def details(self, live: LiveRequest) -> Mapping[str, Any]:
        """A live request with its attempts, and the route that it would get if it came now."""
        context, needs, ticket, state = self._relay.context, live.requirements, live.ticket, live.state()
        waits = self._engines.waiting().get(ticket) if ticket is not None else None
        progress = (waits.phase, waits.position) if waits else (state.phase, None)
        return {
            **_request(state, progress, context.clock.now()),
            "progress": self._how_far(live, progress),
            "prompt_tokens": state.tokens.prompt,
            "max_tokens": state.tokens.most,
            "attempts": [_attempt(each, state.began) for each in state.attempts],
            "explanation": context.router.explain(needs, context.fleet.snapshot) if needs is not None else None,
        }

    def progress(self) -> dict[str, RequestProgress]:
        """The progress of each live request whose model is decided, by its id."""
        return {
            exchange.request_id.decode(): progress
            for exchange, progress in self._live_requests()
            if exchange.model is not None
        }

    def snapshot(self) -> Mapping[str, Any]:
        """The complete state, with which ``/api/events`` begins."""
        return {
            "replicas": [replica(each) for each in self.replicas()],
            "backends": [
                {
                    "backend": each.name,
                    "health": each.health,
                    "error": each.last_error if each.health is Health.UNHEALTHY else None,
                    "draining": each.draining,
                }
                for each in self._relay.context.fleet.backends()
            ],
            "requests": self.requests(),
        }

    def last_error(self, backend: str) -> str | None:
        """The last error of a backend; ``None`` without one."""
        view = self._relay.context.fleet.view(backend)
        return None if view is None else view.last_error

    def waiting_for(self, replica: str) -> int:
        """How many live requests are routed to ``replica``, or wait for a model that it serves."""
        found = 0
        for live in self._relay.live:
            route = live.route
            found += replica in live.state().waits_for if route is None else route.chosen.replica == replica
        return found

    def evicted_for(self, candidate: ExplainedCandidate) -> list[str]:
        """The replicas that would stop so that ``candidate`` could be loaded; none if it runs."""
        fleet, name = self._relay.context.fleet, candidate.replica
        state = next((each.state for each in fleet.snapshot.candidates(candidate.model) if each.replica == name), None)
        if state not in AT_REST:
            return []
        with suppress(RequestError):  # it is not the gateway that loads it, or it cannot run
            return list(self._engines.plan(name).evict)
        return []

    def _how_far(self, exchange: LiveRequest, progress: RequestProgress) -> str | None:
        """How far the download is that the request waits for, or why there is no place yet for its engine."""
        if progress[0] not in (Phase.DOWNLOADING, Phase.PLACING) or exchange.route is None:
            return None
        return self.last_error(exchange.route.chosen.backend)

    def _live_requests(self) -> Iterator[tuple[LiveRequest, RequestProgress]]:
        waiting = {**self._engines.waiting(), **self._relay.context.waiting_room.waiting()}
        for exchange in sorted(self._relay.live, key=lambda exchange: exchange.began):
            ticket = exchange.ticket
            waits = waiting.get(ticket) if ticket is not None else None
            yield exchange, (waits.phase, waits.position) if waits else (exchange.phase, exchange.position)


def replica(candidate: Candidate) -> dict[str, Any]:
    """A replica and its state, as JSON."""
    return {
        "replica": candidate.replica,
        "model": candidate.model,
        "backend": candidate.backend,
        "host": candidate.host,
        "state": candidate.state,
    }


def ended_request(activity: Activity, request_id: str) -> dict[str, Any] | None:
    """The record of the last request with that id, in its last phase; ``None`` if it is not remembered."""
    record = next((each.record for each in activity.newest_first() if each.record.id == request_id), None)
    if record is None:
        return None
    data: dict[str, Any] = msgspec.to_builtins(record)
    return data | {"phase": Phase.FAILED if record.code else Phase.DONE}


def _attempt(attempt: AttemptRecord, began: float) -> dict[str, Any]:
    """An attempt as JSON. Its times are in milliseconds since the request was whole; the live one ends now."""

    def since(at: float | None) -> float | None:
        return None if at is None else round((at - began) * 1000, 1)

    facts = {name: getattr(attempt, name) for name in _SHOWN_FACTS}
    return facts | {f"{name}_ms": since(getattr(attempt, name)) for name in _SHOWN_TIMES} | {"moved": attempt.gap}


def _request(state: LiveState, progress: RequestProgress, now: float) -> dict[str, Any]:
    phase, position = progress
    return {
        "id": state.id.decode(),
        "path": state.path,
        "caller": state.caller,
        "user": state.user,
        "address": state.address,
        "model": state.asked,
        "phase": phase,
        "position": position,
        "replica": state.replica,
        "waits_for": state.waits_for,
        "moves": state.moves,
        "output_tokens": state.tokens.output,
        "stays": state.stays,
        "age_ms": round((now - state.began) * 1000, 1),
    }


def condition(
    replica: Candidate,
    backend: BackendStatus,
    *,
    waiting: int,
    changed_at: tuple[float | None, float | None],
    now: float,
) -> Condition:
    """The condition of a replica for which so many requests wait.

    ``changed_at``: when it got its state and its backend its health, if they changed, in seconds as ``now``.
    """
    state = replica.state
    since, unhealthy_since = changed_at
    if state in (ReplicaState.PLACING, ReplicaState.DOWNLOADING):
        return Condition(word=state.value, why=backend.last_error, since=since)
    if state is ReplicaState.STARTING:
        progress = min(_MOST_PROGRESS, (now - since) / replica.wake_s) if since is not None and replica.wake_s else None
        return Condition(word="loading", since=since, progress=None if progress is None else round(progress, 2))
    if waiting and state in (*AT_REST, ReplicaState.SLEEPING, ReplicaState.STOPPING):
        return Condition(word="waiting for room", since=since)
    if state is ReplicaState.FAILED:
        return Condition(word="failed", why=backend.last_error, since=since)
    if backend.health is Health.UNHEALTHY:
        word = "hung" if backend.state is ReplicaState.HUNG else "unreachable"
        return Condition(word=word, why=backend.last_error, since=unhealthy_since or backend.last_error_at)
    if state is not ReplicaState.READY:
        return Condition(word=state.value, since=since)
    if backend.draining:
        return Condition(word="draining")
    if backend.health is Health.UNKNOWN:
        return Condition(word="unknown", why=backend.last_error)
    if replica.suspect:
        return Condition(word="refused", why=backend.last_error)
    return Condition(word="ready", since=since)
