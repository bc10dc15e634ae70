"""Operations: is the gateway alive, what does it do, what may be done to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.entrance import Entrance
from enginehouse.api.errors import json_response
from enginehouse.api.guard import Endpoint, admin_only
from enginehouse.api.live import Live, replica
from enginehouse.domain.errors import NotFound
from enginehouse.domain.replica import Health
from enginehouse.routing.read import read_request


class Operations:
    """``/health``, ``/ready`` and most of ``/api``. ``about`` gives what else the status tells."""

    def __init__(self, entrance: Entrance, live: Live, about: Callable[[], Mapping[str, str]]) -> None:
        self._entrance = entrance
        self._relay = entrance.relay
        self._live = live
        self._about = about
        self._since = time.time()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The endpoints; those under ``/api`` ask for an admin key where keys are set."""
        admin = self._admin
        return [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/api/status", admin(self.status)),
            Route("/api/requests", admin(self.requests)),
            Route("/api/requests/{id:path}", admin(self.cancel), methods=["DELETE"]),
            Route("/api/decisions", admin(self.decisions)),
            Route("/api/explain/route", admin(self.explain_route), methods=["POST"]),
            Route("/api/backends/{name:path}/drain", admin(self.drain), methods=["POST"]),
            Route("/api/backends/{name:path}/undrain", admin(self.undrain), methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        """The process is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether a request sent now has a backend to go to."""
        self._relay.check_open()
        backends = self._relay.fleet.backends()
        healthy = sum(backend.health is Health.HEALTHY and not backend.draining for backend in backends)
        facts = {"ready": healthy > 0, "healthy_backends": healthy, "backends": len(backends)}
        return json_response(facts, 200 if healthy else 503)

    async def status(self, request: Request) -> Response:
        """Everything at a glance."""
        replicas = [replica(each) | {"capabilities": each.capabilities} for each in self._live.replicas()]
        facts = {
            **self._about(),
            "uptime_s": round(time.time() - self._since, 3),
            "requests": len(self._relay.live),
            "backends": self._relay.fleet.backends(),
            "replicas": replicas,
        }
        return json_response(facts)

    async def requests(self, request: Request) -> Response:
        """Every live request."""
        return json_response({"requests": self._live.requests()})

    async def cancel(self, request: Request) -> Response:
        """End a live request."""
        wanted = request.path_params["id"]
        live = self._relay.find(wanted)
        if live is None:
            raise NotFound(f"There is no live request '{wanted}'")
        live.cancel()
        return json_response({"cancelled": wanted})

    async def decisions(self, request: Request) -> Response:
        """The last routing decisions, newest first; ``?limit=N``."""
        limit = request.query_params.get("limit", "100")
        most = int(limit) if limit.isdecimal() else 100
        return json_response({"decisions": self._relay.decisions.last(most)})

    async def explain_route(self, request: Request) -> Response:
        """What would be decided now for the body sent, as ``enginehouse explain route`` prints it."""
        path = request.query_params.get("path", "/v1/chat/completions")
        router = self._relay.router
        needs = router.requirements(read_request(path, request.headers.raw, await request.body()))
        return json_response(router.explain(needs, self._relay.fleet.snapshot))

    async def drain(self, request: Request) -> Response:
        """Send a backend no new requests."""
        name = request.path_params["name"]
        self._relay.fleet.drain(name)
        return json_response({"backend": name, "draining": True})

    async def undrain(self, request: Request) -> Response:
        """Send a backend new requests again."""
        name = request.path_params["name"]
        self._relay.fleet.undrain(name)
        return json_response({"backend": name, "draining": False})

    def _admin(self, endpoint: Endpoint) -> Endpoint:
        return admin_only(self._entrance, endpoint)
