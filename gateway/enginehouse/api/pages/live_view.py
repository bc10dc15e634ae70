"""The current state of replicas, backends and live requests, as operators see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from enginehouse.domain.errors import RequestError
from enginehouse.domain.gpu import GpuStatus
from enginehouse.domain.replica import AT_REST, Candidate
from enginehouse.domain.route import ExplainedCandidate
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

    def gpus(self) -> Sequence[GpuStatus]:
        """The GPUs of this machine, as they were some seconds ago."""
        return self._engines.gpus()

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every live request, oldest first."""
        now = self._relay.context.clock.now()
        return [_request(exchange, progress, now) for exchange, progress in self._live_requests()]

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

    def _live_requests(self) -> Iterator[tuple[LiveRequest, RequestProgress]]:
        waiting = {**self._engines.waiting(), **self._relay.context.waiting_room.waiting()}
        for exchange in sorted(self._relay.live, key=lambda exchange: exchange.began):
            ticket = exchange.ticket
            waits = waiting.get(ticket) if ticket is not None else None
            yield exchange, (waits.phase, waits.position) if waits else (exchange.phase, None)


def replica(candidate: Candidate) -> dict[str, Any]:
    """A replica and its state, as JSON."""
    return {
        "replica": candidate.replica,
        "model": candidate.model,
        "backend": candidate.backend,
        "host": candidate.host,
        "state": candidate.state,
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
