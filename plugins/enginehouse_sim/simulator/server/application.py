"""The engine as clients see it: authorization, faults, the log of requests, errors, and the pages of operators."""

from __future__ import annotations

import time
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from hmac import compare_digest
from typing import Any

import enginehouse
from enginehouse import InvalidRequest, RequestError
from enginehouse.errors import ModelNotFound, NotFound, Unauthorized
from enginehouse_sim.simulator.server.endpoints import chat, completions, embeddings, tokenize
from enginehouse_sim.simulator.server.faults import AnyFault
from enginehouse_sim.simulator.server.http import DONE, Call
from enginehouse_sim.simulator.server.simulation import Simulation

_STARTED = int(time.time())


async def health(simulation: Simulation, call: Call) -> None:
    """Answer 200 while the engine takes requests, even asleep, and 503 after a failure."""
    await call.answer(b"", b"text/plain", 503 if simulation.engine.failure else 200)


async def metrics(simulation: Simulation, call: Call) -> None:
    """Report vLLM's metrics in Prometheus' text format."""
    await call.answer(simulation.metrics.page(), b"text/plain; version=0.0.4; charset=utf-8")


def _limits(simulation: Simulation) -> dict[str, Any]:
    """The limits of the scheduler, as vLLM has them in development mode."""
    constants = simulation.settings.core.constants
    limits = {"max_num_seqs": constants.max_num_seqs, "max_num_batched_tokens": constants.max_num_batched_tokens}
    return {"vllm_config": {"scheduler_config": limits}}


def _models(simulation: Simulation) -> dict[str, Any]:
    settings = simulation.settings
    return {"object": "list", "data": [_model(simulation, name) for name in (*settings.models, *settings.loras)]}


async def model(simulation: Simulation, call: Call) -> None:
    """Describe one model. Raises ``ModelNotFound``."""
    name = call.path.removeprefix("/v1/models/")
    if name not in (*simulation.settings.models, *simulation.settings.loras):
        raise ModelNotFound(name)
    await call.json(_model(simulation, name))


def _model(simulation: Simulation, name: str) -> dict[str, Any]:
    settings = simulation.settings
    declared = {"vision": settings.vision, "tools": settings.tools, "json_mode": settings.json_mode}
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "enginehouse",
        "root": name,
        "parent": settings.models[0] if name in settings.loras else None,
        "max_model_len": settings.context_length,
        **{capability: value for capability, value in declared.items() if value is not None},
    }


async def sleep(simulation: Simulation, call: Call) -> None:
    """Abort all requests, and sleep at ``level`` 1 (weights in main memory) or 2 (weights dropped)."""
    level = call.parameter("level", "1")
    if level not in ("1", "2"):
        raise InvalidRequest(f"There is no sleep level {level!r}: use 1 or 2")
    simulation.engine.sleep(int(level))
    await call.answer(b"", b"text/plain")


async def wake_up(simulation: Simulation, call: Call) -> None:
    """End the sleep, and begin the requests that arrived in it."""
    simulation.engine.wake()
    await call.answer(b"", b"text/plain")


Endpoint = Callable[[Simulation, Call], Awaitable[None]]

_INFERENCE: Mapping[str, Endpoint] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/embeddings": embeddings,
}
_PAGES: Mapping[tuple[str, str], Endpoint] = {
    **{("POST", path): endpoint for path, endpoint in _INFERENCE.items()},
    ("GET", "/health"): health,
    ("GET", "/metrics"): metrics,
    ("POST", "/sleep"): sleep,
    ("POST", "/tokenize"): tokenize,
    ("POST", "/wake_up"): wake_up,
}
_JSON_PAGES: Mapping[tuple[str, str], Callable[[Simulation], Any]] = {
    ("GET", "/instance_status"): Simulation.status,
    ("GET", "/is_sleeping"): lambda simulation: {"is_sleeping": simulation.engine.sleep_level > 0},
    ("GET", "/server_info"): _limits,
    ("GET", "/v1/models"): _models,
    ("GET", "/version"): lambda _: {"version": enginehouse.__version__},
    ("POST", "/reset_prefix_cache"): lambda simulation: {"success": simulation.engine.reset_prefix_cache()},
}
_ERROR_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}
_MOST_REQUESTS = 5000
_MOST_BYTES = 64 * 1024 * 1024


class Application:
    """Answers the requests of all listeners of an engine."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._log = RequestLog()

    async def serve(self, call: Call) -> None:
        if call.path.startswith("/sim/"):
            await self._answer(call)
        elif call.method == "POST":
            with self._log.record(call) as outcome:
                await self._answer_or_fail(call, outcome)
        else:
            await self._answer_or_fail(call, {})

    async def _answer_or_fail(self, call: Call, outcome: dict[str, str | None]) -> None:
        hit = self._simulation.faults.hit(call, call.path in _INFERENCE)
        if hit is not None:
            call.hooks = hit.fault
            outcome["fault"] = hit.kind
            if await hit.fault.before(call, hit.cleared):
                return
        await self._answer(call)

    async def _answer(self, call: Call) -> None:
        try:
            self._authorize(call)
            if call.path.startswith("/sim/"):
                await call.json(await self._controlled(call))
            elif call.method == "GET" and call.path.startswith("/v1/models/"):
                await model(self._simulation, call)
            elif (endpoint := _PAGES.get((call.method, call.path))) is not None:
                await endpoint(self._simulation, call)
            elif (page := _JSON_PAGES.get((call.method, call.path))) is not None:
                await call.json(page(self._simulation))
            else:
                raise _unknown(call)
        except RequestError as error:
            if call.streams:
                await call.event(_envelope(error))
                await call.close_stream(DONE)
            else:
                await call.json(_envelope(error), error.status)

    def _authorize(self, call: Call) -> None:
        key = self._simulation.settings.api_key
        if key is None or not call.path.startswith("/v1/"):
            return
        if not compare_digest(call.header(b"authorization") or b"", b"Bearer " + key.encode()):
            raise Unauthorized("This engine was started with --api-key: send it as a bearer token")

    async def _controlled(self, call: Call) -> list[dict[str, Any]]:
        """The pages under ``/sim``, for tests: the last requests, and the active faults."""
        faults = self._simulation.faults
        match call.method, call.path:
            case "GET", "/sim/requests":
                return self._log.listing()
            case "DELETE", "/sim/requests":
                self._log.clear()
            case "GET", "/sim/faults":
                pass
            case "POST", "/sim/faults":
                fault: AnyFault = call.decode(AnyFault)  # type: ignore[arg-type]
                faults.add(fault, can_be_cleared=self._simulation.settings.control_port is not None)
            case "DELETE", "/sim/faults":
                await faults.clear()
            case _:
                raise _unknown(call)
        return faults.listing() if call.path == "/sim/faults" else []


def _unknown(call: Call) -> NotFound:
    return NotFound(f"No page answers {call.method} {call.path}")


def _envelope(error: RequestError) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(error.status, "InternalServerError")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}


class RequestLog:
    """The last requests in order of arrival, byte for byte, limited in number and in bytes; and their outcomes.

    A ``status`` is ``running``, ``done``, or ``aborted`` for an incomplete answer; a ``fault`` is the kind of the fault
    that hit the request.
    """

    def __init__(self) -> None:
        self._requests: deque[tuple[str, list[tuple[bytes, bytes]], bytes, dict[str, str | None]]] = deque()
        self._bytes = 0

    @contextmanager
    def record(self, call: Call) -> Iterator[dict[str, str | None]]:
        """Log ``call``. Yields its outcome, whose status is set when the block is left."""
        outcome: dict[str, str | None] = {"status": "running", "fault": None}
        self._requests.append((call.target, call.headers, call.body, outcome))
        self._bytes += len(call.body)
        while len(self._requests) > _MOST_REQUESTS or (self._bytes > _MOST_BYTES and len(self._requests) > 1):
            self._bytes -= len(self._requests.popleft()[2])
        try:
            yield outcome
        except BaseException:
            outcome["status"] = "aborted"
            raise
        outcome["status"] = "done"

    def clear(self) -> None:
        self._requests.clear()
        self._bytes = 0

    def listing(self) -> list[dict[str, Any]]:
        return [
            {
                "path": target,
                "headers": [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
                **outcome,
                **_written(body),
            }
            for target, headers, body, outcome in self._requests
        ]


def _written(body: bytes) -> dict[str, str]:
    """``body`` as text, or as ``body_base64`` if it is not UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}
