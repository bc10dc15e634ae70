"""Most of ``/api``: status, live requests, decisions and explanations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.api.pages.live_view import LiveView, ended_request
from enginehouse.api.pages.reading import read_body
from enginehouse.domain.errors import InvalidRequest, NotFound
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.jobs.hand_over_rules import hand_over_rules
from enginehouse.relay.relay import Relay
from enginehouse.routing.body.end_user import end_user
from enginehouse.routing.body.read import read_request
from enginehouse.telemetry.decisions import MOST


class _MoveOrder(msgspec.Struct):
    """The body of ``/api/requests/{id}/move``."""

    to: str


class Operations:
    """Shows operators the gateway's state. ``about`` returns further facts for the status."""

    def __init__(
        self, relay: Relay, engines: ManagedEngines, live: LiveView, about: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._relay = relay
        self._engines = engines
        self._live = live
        self._about = about
        self._epoch = relay.context.clock.epoch
        self._since = self._epoch()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/status", self.status),
            Route("/api/requests", self.requests),
            Route("/api/requests/{id:path}/move", self.move, methods=["POST"]),
            Route("/api/requests/{id:path}", self.request, methods=["GET"]),
            Route("/api/requests/{id:path}", self.cancel, methods=["DELETE"]),
            Route("/api/decisions", self.decisions),
            Route("/api/explain/route", self.explain_route, methods=["POST"]),
        ]

    async def status(self, request: Request) -> Response:
        """The gateway, its backends and its replicas."""
        facts = {
            **self._about(),
            "uptime_s": round(self._epoch() - self._since, 3),
            "requests": len(self._relay.live),
            "backends": self._relay.context.fleet.backends(),
            "replicas": self._live.status_rows(),
            "hosts": self._engines.memory(),
            "learned": self._relay.context.router.strategies.learned(),
            "mirrors": self._relay.mirrors.figures(),
            "gpus": self._engines.gpus(),
        }
        return json_response(facts)

    async def requests(self, request: Request) -> Response:
        """Every live request, oldest first."""
        return json_response({"requests": self._live.requests()})

    async def request(self, request: Request) -> Response:
        """The request with an id, and how it was routed: the oldest of live ones, else the last that has ended."""
        wanted, context = request.path_params["id"], self._relay.context
        live = min(self._relay.find(wanted), key=lambda live: live.began, default=None)
        found = self._live.details(live) if live is not None else ended_request(context.activity, wanted)
        if found is None:
            raise NotFound(f"There is no live request '{wanted}', and none of the last {MOST} had this id")
        decision = next((each for each in context.decisions.last(MOST) if each["request_id"] == wanted), None)
        return json_response({**found, "decision": decision})

    async def cancel(self, request: Request) -> Response:
        """Cancel all live requests with an id, which clients choose. The answer tells how many there were."""
        wanted = request.path_params["id"]
        found = self._relay.find(wanted)
        if not found:
            raise NotFound(f"There is no live request '{wanted}'")
        for live in found:
            live.cancel()
        return json_response({"cancelled": wanted, "requests": len(found)})

    async def move(self, request: Request) -> Response:
        """Continue a live stream at another backend."""
        wanted = await read_body(request, _MoveOrder, '{"to": "BACKEND"}')
        moved = await self._relay.move(request.path_params["id"], wanted.to)
        answer = {"id": moved.id, "from": moved.source, "to": moved.destination, "gap_ms": moved.gap_ms}
        return json_response(answer)

    async def decisions(self, request: Request) -> Response:
        """The last routing decisions, newest first. ``?limit=N``, else 100."""
        limit = request.query_params.get("limit", "100")
        # int() takes seconds for millions of digits
        most = int(limit) if limit.isdecimal() and len(limit) <= len(str(MOST)) else 0
        if not 1 <= most <= MOST:
            raise InvalidRequest(f"'limit' must be a number from 1 to {MOST}", param="limit")
        return json_response({"decisions": self._relay.context.decisions.last(most)})

    async def explain_route(self, request: Request) -> Response:
        """The route that the request in the body would get now, as in ``enginehouse explain route``."""
        path = request.query_params.get("path", "/v1/chat/completions")
        context = self._relay.context
        asked = read_request(path, request.headers.raw, await request.body())
        needs = context.router.requirements(asked)
        needs.user = end_user(asked.body, context.hash_users)
        context.router.apply_rules(needs, request.headers.raw, rehearsal=True)
        rules = hand_over_rules(context.drivers, path)
        explanation = context.router.explain(needs, context.fleet.snapshot, rules)
        shown = [msgspec.structs.replace(each, evicts=self._live.evicted_for(each)) for each in explanation.candidates]
        return json_response(msgspec.structs.replace(explanation, candidates=shown))
