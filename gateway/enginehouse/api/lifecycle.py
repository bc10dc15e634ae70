"""Loading and unloading models, under ``/api`` and as llama-swap's users know it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.entrance import Entrance
from enginehouse.api.errors import json_response
from enginehouse.api.guard import Endpoint, admin_only
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.hosts import Hosts


class _SwapQuestion(msgspec.Struct):
    """The body of ``/api/explain/swap``; without ``running``, what runs now."""

    target: str
    running: list[str] | None = None


class Lifecycle:
    """``/api/models/{id}/load`` and ``/unload``, ``/api/explain/swap``, ``/running`` and ``/unload``."""

    def __init__(self, entrance: Entrance, hosts: Hosts) -> None:
        self._entrance = entrance
        self._hosts = hosts

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The endpoints; all of them ask for an admin key where keys are set."""
        return [
            Route("/api/models/{id:path}/load", self._admin(self.load), methods=["POST"]),
            Route("/api/models/{id:path}/unload", self._admin(self.unload), methods=["POST"]),
            Route("/api/explain/swap", self._admin(self.explain_swap), methods=["POST"]),
            Route("/running", self._admin(self.running)),
            Route("/unload", self._admin(self.unload_all), methods=["GET", "POST"]),
        ]

    async def load(self, request: Request) -> Response:
        """Load a model, in its turn; answers when it is ready."""
        model = request.path_params["id"]
        await self._hosts.load(model)
        return json_response({"model": model, "state": ReplicaState.READY})

    async def unload(self, request: Request) -> Response:
        """Unload a model; answers when it is gone."""
        model = request.path_params["id"]
        await self._hosts.unload([model])
        return json_response({"model": model, "state": ReplicaState.STOPPED})

    async def unload_all(self, request: Request) -> Response:
        """Unload every model."""
        await self._hosts.unload()
        return PlainTextResponse("OK")

    async def running(self, request: Request) -> Response:
        """Every launched replica that is not at rest."""
        return json_response({"running": self._hosts.running()})

    async def explain_swap(self, request: Request) -> Response:
        """What would be stopped so that a model can run, as ``enginehouse explain swap`` prints it."""
        try:
            question = msgspec.json.decode(await request.body(), type=_SwapQuestion)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f'{error}; send {{"target": "MODEL", "running": ["MODEL"]}}') from None
        return json_response(self._hosts.explain_swap(question.target, question.running))

    def _admin(self, endpoint: Endpoint) -> Endpoint:
        return admin_only(self._entrance, endpoint)
