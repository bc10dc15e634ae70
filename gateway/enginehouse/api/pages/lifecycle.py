"""Loads and unloads models, under ``/api`` and under llama-swap's paths."""

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


class _SwapQuestion(msgspec.Struct):
    """The body of ``/api/explain/swap``. ``running`` defaults to the models that run now."""

    target: str
    running: list[str] | None = None


class Lifecycle:
    """``/api/models/{id}/load`` and ``/unload``, ``/api/explain/swap``, ``/running`` and ``/unload``."""

    def __init__(self, engines: ManagedEngines) -> None:
        self._engines = engines

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/models/{id:path}/load", self.load, methods=["POST"]),
            Route("/api/models/{id:path}/unload", self.unload, methods=["POST"]),
            Route("/api/explain/swap", self.explain_swap, methods=["POST"]),
            Route("/running", self.running),
            Route("/unload", self.unload_all, methods=["GET", "POST"]),
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


def _is_forced(request: Request) -> bool:
    value = request.query_params.get("force", "false")
    if value not in ("true", "false"):
        raise InvalidRequest("'force' is true or false")
    return value == "true"
