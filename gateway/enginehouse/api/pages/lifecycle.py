"""Loads and unloads models, and takes backends out of service, under ``/api`` and under llama-swap's paths."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.api.pages.reading import read_body
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay


class _SwapQuestion(msgspec.Struct):
    """The body of ``/api/explain/swap``. ``running`` defaults to the models that run now."""

    target: str
    running: list[str] | None = None


class Lifecycle:
    """The pages that change what runs, or tell what would."""

    def __init__(self, relay: Relay, engines: ManagedEngines) -> None:
        self._relay = relay
        self._engines = engines

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/models/{id:path}/load", self.load, methods=["POST"]),
            Route("/api/models/{id:path}/unload", self.unload, methods=["POST"]),
            Route("/api/explain/swap", self.explain_swap, methods=["POST"]),
            Route("/running", self.running),
            Route("/unload", self.unload_all, methods=["GET", "POST"]),
            Route("/api/backends/{name:path}/drain", self.drain, methods=["POST"]),
            Route("/api/backends/{name:path}/undrain", self.undrain, methods=["POST"]),
            Route("/api/backends/{name:path}/stop", self.stop, methods=["POST"]),
        ]

    async def load(self, request: Request) -> Response:
        """Load a model when its turn comes. Answers when the model is ready."""
        model = request.path_params["id"]
        await self._engines.load(model)
        return json_response({"model": model, "state": ReplicaState.READY})

    async def unload(self, request: Request) -> Response:
        """Unload a model. Answers when its engines have stopped. ``?force=true`` does not wait for live requests."""
        model = request.path_params["id"]
        await self._engines.unload([model], force=_is_forced(request))
        return json_response({"model": model, "state": ReplicaState.STOPPED})

    async def unload_all(self, request: Request) -> Response:
        """Unload every model. ``?force=true`` does not wait for live requests."""
        await self._engines.unload(force=_is_forced(request))
        return PlainTextResponse("OK")

    async def running(self, request: Request) -> Response:
        """Every launched replica that is not stopped."""
        return json_response({"running": self._engines.running()})

    async def explain_swap(self, request: Request) -> Response:
        """The replicas that would stop so that a model can run, as in ``enginehouse explain swap``."""
        question = await read_body(request, _SwapQuestion, '{"target": "MODEL", "running": ["MODEL"]}')
        return json_response(self._engines.explain_swap(question.target, question.running))

    async def drain(self, request: Request) -> Response:
        """Send no new requests to a backend, and move its streams away. Answers at once, with the live requests."""
        name = request.path_params["name"]
        self._relay.context.fleet.drain(name)
        self._relay.drains.begin(name)
        return json_response({"backend": name, "draining": True, "live": len(self._relay.drains.live(name))})

    async def undrain(self, request: Request) -> Response:
        """Send new requests to a backend again."""
        name = request.path_params["name"]
        self._relay.context.fleet.undrain(name)
        return json_response({"backend": name, "draining": False, "live": len(self._relay.drains.live(name))})

    async def stop(self, request: Request) -> Response:
        """Stop the engine of a drained backend that the gateway launched. Answers when it has stopped."""
        name = request.path_params["name"]
        self._relay.context.fleet.health(name)  # raises NotFound
        if left := len(self._relay.drains.live(name)):
            raise InvalidRequest(f"Backend '{name}' still has {left} live requests; drain it first")
        await self._engines.stop(name)
        return json_response({"backend": name, "state": ReplicaState.STOPPED})


def _is_forced(request: Request) -> bool:
    value = request.query_params.get("force", "false")
    if value not in ("true", "false"):
        raise InvalidRequest("'force' is true or false")
    return value == "true"
