"""The ASGI application: routing, authorization, faults and errors around the endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from typing import Any

from enginehouse import NotFound, RequestError, Unauthorized
from enginehouse_sim.simulator.server.endpoints import control, memory, operations, tokens
from enginehouse_sim.simulator.server.endpoints.chat import chat
from enginehouse_sim.simulator.server.endpoints.completions import completions
from enginehouse_sim.simulator.server.endpoints.messages import anthropic_error, count_tokens, messages
from enginehouse_sim.simulator.server.endpoints.pooling import embeddings, rerank, score
from enginehouse_sim.simulator.server.endpoints.responses import responses
from enginehouse_sim.simulator.server.endpoints.speech import speech
from enginehouse_sim.simulator.server.http.call import DONE, Call, Receive, Send
from enginehouse_sim.simulator.server.request_log import LoggedRequest
from enginehouse_sim.simulator.server.simulation import Simulation

Endpoint = Callable[[Simulation, Call], Awaitable[None]]

_INFERENCE: Mapping[str, Endpoint] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/messages": messages,
    "/v1/embeddings": embeddings,
    "/v1/rerank": rerank,
    "/v1/responses": responses,
    "/v1/score": score,
    "/v1/audio/speech": speech,
}
_PAGES: Mapping[tuple[str, str], Endpoint] = {
    **{("POST", path): endpoint for path, endpoint in _INFERENCE.items()},
    ("POST", "/v1/messages/count_tokens"): count_tokens,
    ("POST", "/tokenize"): tokens.tokenize,
    ("POST", "/detokenize"): tokens.detokenize,
    ("GET", "/health"): operations.health,
    ("GET", "/ping"): operations.health,
    ("POST", "/ping"): operations.health,
    ("GET", "/load"): operations.load,
    ("GET", "/metrics"): operations.metrics,
    ("GET", "/instance_status"): operations.instance_status,
    ("POST", "/sleep"): memory.sleep,
    ("POST", "/wake_up"): memory.wake_up,
    ("GET", "/is_sleeping"): memory.is_sleeping,
    ("POST", "/pause"): memory.pause,
    ("POST", "/resume"): memory.resume,
    ("GET", "/is_paused"): memory.is_paused,
    ("POST", "/reset_prefix_cache"): memory.reset_prefix_cache,
    ("GET", "/v1/models"): operations.models,
    ("GET", "/version"): operations.version,
    ("GET", "/server_info"): operations.server_info,
    ("GET", "/sim/requests"): control.list_requests,
    ("DELETE", "/sim/requests"): control.clear_requests,
    ("GET", "/sim/faults"): control.list_faults,
    ("POST", "/sim/faults"): control.set_fault,
    ("DELETE", "/sim/faults"): control.clear_faults,
}
_ERROR_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}


class Application:
    """The ASGI application of a simulated engine, which ``SimProtocol`` serves."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request. When the client closes the connection, the task is cancelled."""
        call = Call(scope, receive, send, self._simulation.clock)
        task = asyncio.current_task()
        assert task is not None
        call.connection.on_lost = task.cancel
        try:
            if not call.connection.lost:
                await self._serve(call)
        except asyncio.CancelledError:
            if not call.connection.lost:
                raise
        finally:
            call.connection.on_lost = None

    async def _serve(self, call: Call) -> None:
        await call.read()
        if call.path.startswith("/sim/"):
            await self._answer(call)
        elif call.method == "POST":
            with self._simulation.requests.record(call) as logged:
                await self._answer_or_fail(call, logged)
        else:
            await self._answer_or_fail(call, None)

    async def _answer_or_fail(self, call: Call, logged: LoggedRequest | None) -> None:
        hit = self._simulation.faults.hit(call, call.path in _INFERENCE)
        if hit is not None:
            call.hooks = hit.fault
            if logged is not None:
                logged.fault = hit.kind
            if await hit.fault.before(call, hit.cleared):
                return
        await self._answer(call)

    async def _answer(self, call: Call) -> None:
        try:
            self._authorize(call)
            await _endpoint(call)(self._simulation, call)
        except RequestError as error:
            anthropic = call.path.startswith("/v1/messages")
            envelope = anthropic_error(error) if anthropic else _envelope(error)
            if call.streams:
                await call.event(envelope, "error" if anthropic else "")
                await call.close_stream(b"" if anthropic else DONE)
            else:
                await call.json(envelope, error.status)

    def _authorize(self, call: Call) -> None:
        key = self._simulation.settings.api_key
        if key is None or not call.path.startswith("/v1/"):
            return
        if not compare_digest(call.header(b"authorization") or b"", b"Bearer " + key.encode()):
            raise Unauthorized("This engine was started with --api-key: send it as a bearer token")


def _endpoint(call: Call) -> Endpoint:
    if (endpoint := _PAGES.get((call.method, call.path))) is not None:
        return endpoint
    if call.method == "GET" and call.path.startswith("/v1/models/"):
        return operations.model
    raise NotFound(f"No page answers {call.method} {call.path}")


def _envelope(error: RequestError) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(error.status, "InternalServerError")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}
