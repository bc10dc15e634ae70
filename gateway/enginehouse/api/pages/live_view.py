"""The current state of replicas, backends and live requests, as operators see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from enginehouse.api.pages.condition import condition
from enginehouse.domain.errors import RequestError
from enginehouse.domain.explanation import ExplainedCandidate
from enginehouse.domain.gpu import GpuStatus
from enginehouse.domain.replica import AT_REST, Candidate
from enginehouse.domain.request_record import AttemptRecord
from enginehouse.domain.ticket import Phase
from enginehouse.engines.host_memory import HostMemory
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.event_stream import RequestProgress


class LiveView:
    """Reads the relay and the hosts on each call; stores nothing."""

    def __init__(self, relay: Relay, engines: ManagedEngines) -> None:
        self._relay = relay
        self._engines = engines

    def replicas(self) -> Sequence[Candidate]:
        return [each for candidates in self._relay.context.fleet.snapshot.models.values() for each in candidates]

    def status_rows(self) -> Sequence[Mapping[str, Any]]:
        """Every replica with its condition, its memory, its slots, and the requests that wait for it."""
        fleet, now = self._relay.context.fleet, self._relay.context.clock.epoch()
        backends = {each.name: each for each in fleet.backends()}
        waiting = self._waiting_by_replica()
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

    def hosts(self) -> Sequence[HostMemory]:
        """The memory of the hosts."""
        return self._engines.memory()

    def gpus(self) -> Sequence[GpuStatus]:
        """The GPUs of this machine, as they were some seconds ago."""
        return self._engines.gpus()

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every live request, oldest first."""
        now = self._relay.context.clock.now()
        return [
            _request(exchange, progress, now) | {"progress": self._how_far(exchange, progress)}
            for exchange, progress in self._live_requests()
        ]

    def details(self, live: LiveRequest) -> Mapping[str, Any]:
        """A live request with its attempts, and the route that it would get if it came now."""
        context, needs, attempt = self._relay.context, live.requirements, live.attempt
        ticket = live.ticket
        waits = self._engines.waiting().get(ticket) if ticket is not None else None
        progress = (waits.phase, waits.position) if waits else (live.phase, None)
        attempts = [*live.attempts, *([attempt.facts("live").record()] if attempt is not None else [])]
        return {
            **_request(live, progress, context.clock.now()),
            "progress": self._how_far(live, progress),
            "prompt_tokens": live.prompt_tokens,
            "max_tokens": live.max_tokens,
            "attempts": [_attempt(each, live.began) for each in attempts],
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
                {"backend": each.name, "health": each.health, "draining": each.draining}
                for each in self._relay.context.fleet.backends()
            ],
            "requests": self.requests(),
        }

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
        backend = exchange.route.chosen.backend
        return next((each.last_error for each in self._relay.context.fleet.backends() if each.name == backend), None)

    def _waiting_by_replica(self) -> Counter[str]:
        """How many requests wait for each replica. The tickets of a backend with a limit name no replica."""
        waiting = self._engines.waiting()
        if not waiting:
            return Counter()
        routes = {live.ticket: live.route.chosen.replica for live in self._relay.live if live.ticket and live.route}
        return Counter(routes.get(ticket, ticket.replica) for ticket in waiting)

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


def _attempt(attempt: AttemptRecord, began: float) -> dict[str, Any]:
    """An attempt as JSON. Its times are in milliseconds since the request was whole; the live one ends now."""

    def since(at: float | None) -> float | None:
        return None if at is None else round((at - began) * 1000, 1)

    return {
        "backend": attempt.backend,
        "replica": attempt.replica,
        "model": attempt.model,
        "reason": attempt.reason,
        "attempted": attempt.attempted,
        "outcome": attempt.outcome,
        "why": attempt.why,
        "status": attempt.status,
        "began_ms": since(attempt.began),
        "granted_ms": since(attempt.granted),
        "sent_ms": since(attempt.sent),
        "first_byte_ms": since(attempt.first_byte),
        "ended_ms": since(attempt.ended),
        "moved": attempt.gap,
    }


def _request(exchange: LiveRequest, progress: RequestProgress, now: float) -> dict[str, Any]:
    route, needs = exchange.route, exchange.requirements
    phase, position = progress
    return {
        "id": exchange.request_id.decode(),
        "path": exchange.path,
        "caller": exchange.caller,
        "user": exchange.user,
        "address": exchange.address,
        "model": needs.model if needs else None,
        "phase": phase,
        "position": position,
        "replica": route.chosen.replica if route else None,
        "waits_for": exchange.waits_for,
        "moves": exchange.moves,
        "output_tokens": exchange.output_tokens,
        "stays": exchange.why_not_movable,
        "age_ms": round((now - exchange.began) * 1000, 1),
    }
