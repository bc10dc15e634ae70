"""What goes on now: the replicas, the backends' health and the live requests, as operators are told of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from enginehouse.domain.replica import Candidate
from enginehouse.engines.hosts import Hosts
from enginehouse.relay.live_request import LiveRequest
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.broadcast import Standing


class Live:
    """Looks at the relay and the hosts when it is asked; keeps nothing."""

    def __init__(self, relay: Relay, hosts: Hosts) -> None:
        self._relay = relay
        self._hosts = hosts

    def replicas(self) -> Sequence[Candidate]:
        """Every replica."""
        return [each for candidates in self._relay.fleet.snapshot.models.values() for each in candidates]

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every live request, the oldest first."""
        return [_request(exchange, standing) for exchange, standing in self._standings()]

    def standings(self) -> dict[str, Standing]:
        """How far each live request with a route is, by its id."""
        return {
            exchange.request_id.decode(): standing
            for exchange, standing in self._standings()
            if exchange.route is not None
        }

    def picture(self) -> Mapping[str, Any]:
        """All of it, as ``/api/events`` begins with it."""
        return {
            "replicas": [replica(each) for each in self.replicas()],
            "backends": [{"backend": each.name, "health": each.health} for each in self._relay.fleet.backends()],
            "requests": self.requests(),
        }

    def _standings(self) -> Iterator[tuple[LiveRequest, Standing]]:
        waiting = self._hosts.waiting()
        for exchange in sorted(self._relay.live, key=lambda exchange: exchange.began):
            ticket = exchange.ticket
            waits = waiting.get(ticket) if ticket is not None else None
            yield exchange, (waits.phase, waits.position) if waits else (exchange.phase, None)


def replica(candidate: Candidate) -> dict[str, Any]:
    """A replica and its state."""
    return {
        "replica": candidate.replica,
        "model": candidate.model,
        "backend": candidate.backend,
        "host": candidate.host,
        "state": candidate.state,
    }


def _request(exchange: LiveRequest, standing: Standing) -> dict[str, Any]:
    route, needs = exchange.route, exchange.requirements
    phase, position = standing
    return {
        "id": exchange.request_id.decode(),
        "path": exchange.path,
        "model": needs.model if needs else None,
        "phase": phase,
        "position": position,
        "replica": route.chosen.replica if route else None,
        "age_ms": round((time.perf_counter() - exchange.began) * 1000, 1),
    }
