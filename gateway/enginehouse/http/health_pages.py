"""The pages that tell load balancers whether the gateway lives, and whether it takes requests."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.domain.errors import ShuttingDown
from enginehouse.domain.replica import Health
from enginehouse.interfaces.routes import json_response
from enginehouse.relay.relay import Relay


class HealthPages:
    """Both pages need no key. ``leaving``: the gateway stops soon, so load balancers should send it nothing more."""

    leaving = False

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/health", self.health), Route("/ready", self.ready)]

    async def health(self, request: Request) -> Response:
        """Answer 200 while the process is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Answer 200 while a healthy backend takes requests, else 503.

        Also 503 until the first verdict on each backend: before, a model that it has would be unknown.
        """
        self._relay.check_open()
        if self.leaving:
            raise ShuttingDown("The gateway is about to stop")
        backends = self._relay.context.fleet.backends()
        healthy = sum(backend.health is Health.HEALTHY and not backend.draining for backend in backends)
        unlisted = self._relay.context.fleet.snapshot.unlisted
        awaited = [each.name for each in backends if each.name in unlisted and each.health is Health.UNKNOWN]
        ready = healthy > 0 and not awaited
        facts = {"ready": ready, "healthy_backends": healthy, "backends": len(backends), "awaited": awaited}
        return json_response(facts, 200 if ready else 503)
