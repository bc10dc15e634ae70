"""The gateway's own account of the requests at each instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from enginehouse import Role, Route
from enginehouse.rescheduling import InstanceStatus, RequestView
from enginehouse.services import GatewayRequest, ServiceGateway
from enginehouse.tickets import Phase
from enginehouse_kit.request_ids import gateway_request_ids
from enginehouse_kit.rescheduling import InFlight

_FORGOTTEN_S = 10.0
"""After this, a request that no status shows counts as known to the engine, as in Llumnix."""
_SLICE = 100
"""Requests between two turns of the event loop: less than 1 ms of work."""


class LiveFigures(NamedTuple):
    """A live request at an instance. ``sent_at``: when it was whole, in seconds of the gateway's clock.

    ``read``: the request with the facts from its stream: tokens, and why it stays.
    """

    request: RequestView
    sent_at: float
    read: Callable[[], RequestView]


class PlacedRequests:
    """The live requests by instance. Those that engines have moved are at their destination."""

    def __init__(self, gateway: ServiceGateway) -> None:
        self._requests = gateway.requests
        self._moved: dict[str, tuple[Route, str]] = {}
        self._in_turn: dict[str, list[GatewayRequest]] = {}
        """The requests of each instance in this turn of the event loop; empty until one asks for them."""

    def note_move(self, request: str, destination: str) -> None:
        """Count a request at ``destination`` until it ends or its route changes."""
        for live in self._requests:
            if live.id == request and live.route is not None:
                self._moved[request] = (live.route, destination)
        self._in_turn.clear()

    def at(self, instance: str) -> Sequence[RequestView]:
        """The live requests of one instance, oldest first, with the facts from their streams.

        Needs a running event loop, in whose turn many migrations begin: they look for requests once.
        """
        found = self._in_turn
        if not found:
            for live in self._requests:
                if (backend := self._instance(live)) is not None:
                    found.setdefault(backend, []).append(live)
            asyncio.get_running_loop().call_soon(found.clear)
        return [live.view(streams=True) for live in found.get(instance, ())]

    async def by_instance(self) -> Mapping[str, Sequence[LiveFigures]]:
        """The live requests of each instance, oldest first. Other work of the event loop is done meanwhile."""
        found: dict[str, list[LiveFigures]] = {}
        live = [*self._requests]
        await asyncio.sleep(0)
        for start in range(0, len(live), _SLICE):
            for backend, figures in self._placed(live[start : start + _SLICE]):
                found.setdefault(backend, []).append(figures)
            await asyncio.sleep(0)
        known = {each.request.id for figures in found.values() for each in figures}
        self._moved = {request: moved for request, moved in self._moved.items() if request in known}
        return found

    def _placed(self, requests: Iterable[GatewayRequest]) -> Iterator[tuple[str, LiveFigures]]:
        """Each request that an engine has, with the backend."""
        for live in requests:
            if (instance := self._instance(live)) is not None:
                view = live.view(streams=False)
                yield instance, LiveFigures(view, live.began, partial(live.view, streams=True))

    def _instance(self, live: GatewayRequest) -> str | None:
        """The instance that has a request; ``None`` if none has."""
        route = live.route
        if route is None or live.phase is not Phase.SERVING:
            return None
        moved_from, destination = self._moved.get(live.id, (None, ""))
        return destination if moved_from is route else route.chosen.backend


def waiting_at(status: InstanceStatus) -> frozenset[str]:
    """The gateway's ids of the requests that wait at an engine, if it names them."""
    return frozenset(id for each in status.waiting_requests for id in gateway_request_ids(each))


def in_flight(
    figures: Sequence[LiveFigures], role: Role, status: InstanceStatus, asked_at: float, now: float
) -> InFlight:
    """The requests of ``figures`` that ``status``, asked for at ``asked_at``, does not count yet."""
    unseen = list(_unseen(figures, status, asked_at, now))
    tokens = sum(each.prompt_tokens for each in unseen)
    prefill, decode = role is not Role.DECODE, role is not Role.PREFILL
    return InFlight(
        num_inflight_dispatch_requests=len(unseen),
        num_inflight_dispatch_prefill_requests=len(unseen) * prefill,
        num_inflight_dispatch_decode_requests=len(unseen) * decode,
        num_uncomputed_tokens_inflight_dispatch_prefill_requests=tokens * prefill,
        num_tokens_inflight_dispatch_decode_requests=tokens * decode,
    )


def _unseen(
    figures: Sequence[LiveFigures], status: InstanceStatus, asked_at: float, now: float
) -> Iterator[RequestView]:
    """As in Llumnix, by the ids of the status. Of an engine that names none, those sent after it was asked."""
    named = (*status.recent_waiting_requests, *status.waiting_requests)
    seen = {id for each in named for id in gateway_request_ids(each)}
    for each in figures:
        unnamed = each.request.id not in seen and now - each.sent_at < _FORGOTTEN_S
        if unnamed if seen else each.sent_at > asked_at:
            yield each.request
