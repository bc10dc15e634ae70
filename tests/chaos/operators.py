"""Operators: whatever is asked of the gateway besides inference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.chaos.asks import Ask
from tests.chaos.clients import Client, Manner, Plan
from tests.chaos.configs import ADMIN_KEY
from tests.chaos.schedule import Action
from tests.chaos.virtual_time import clock

if TYPE_CHECKING:
    from tests.chaos.world import World

_ENDLESS = ("/api/events", "/logs/stream")


class Operators:
    """Sends operators' requests, each on a connection of its own."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self, action: Action) -> None:
        """Carry out one action of the schedule."""
        if action.what in ("drain", "undrain"):
            self.do("POST", f"/api/backends/{action.whom}/{action.what}")
        elif action.what in ("load", "unload"):
            self.do("POST", f"/api/models/{action.whom}/{action.what}")
        elif action.what == "unload all":
            self.do("GET", "/unload")
        elif action.what == "page":
            self.do("GET", action.whom)
        else:
            self._world.spawn(self._delete_one())

    def do(self, method: str, target: str) -> None:
        """Send a request without waiting for its answer."""
        self._world.spawn(self._do(method, target))

    async def undrain_all(self) -> None:
        """Take every drain back."""
        status = await self._do("GET", "/api/status")
        for backend in json.loads(status.answer)["backends"] if status.complete and status.status == 200 else ():
            if backend["draining"]:
                await self._do("POST", f"/api/backends/{backend['name']}/undrain")

    async def _delete_one(self) -> None:
        listed = await self._do("GET", "/api/requests")
        whole = listed.complete and listed.status == 200  # the worker that answers may be killed
        requests = json.loads(listed.answer)["requests"] if whole else []
        if requests:
            chosen = self._world.rng.choice(requests)
            await self._do("DELETE", f"/api/requests/{chosen['id']}")

    async def _do(self, method: str, target: str) -> Ask:
        world = self._world
        ask = Ask(0, method, target, b"", [("authorization", f"Bearer {ADMIN_KEY}")])
        ask.closes = True
        leaves = "close" if target in _ENDLESS else ""
        manner = Manner(leaves="close", leaves_after=5.0) if leaves else Manner()
        from tests.chaos.world import GATEWAY

        client = Client(Plan(clock.now, (ask,), manner), world.network, GATEWAY, world.rng)
        await client.run()
        world.note("operator", f"{method} {target}: {ask.status} {ask.broken} {ask.answer[:200]!r}")
        for violation in client.violations:
            world.violated(f"operator's {method} {target}: {violation}")
        return ask
