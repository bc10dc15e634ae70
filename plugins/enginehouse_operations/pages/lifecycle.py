"""Loads and unloads models, takes backends out of service and reloads, under ``/api`` and llama-swap's paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from enginehouse import EnginehouseError, InvalidRequest, ReplicaState, RequestError
from enginehouse.pages import json_response
from enginehouse_kit.swap_plans import explain_swap
from enginehouse_operations.pages.reading import gateway_of, read_body, read_flag


class _RunningEngine(msgspec.Struct, frozen=True):
    """An engine that is neither stopped nor failed, in llama-swap's words.

    ``cmd``: the configured command, whose variables are not replaced. ``proxy``: its URL. ``ttl``: in seconds.
    """

    model: str
    backend: str
    state: ReplicaState
    name: str
    description: str
    cmd: str
    proxy: str
    ttl: float


class _SwapQuestion(msgspec.Struct):
    """The body of ``/api/explain/swap``. ``running`` defaults to the models that run now."""

    target: str
    running: list[str] | None = None


async def _load(request: Request) -> Response:
    """Load a model when its turn comes. Answers when the model is ready."""
    model = request.path_params["id"]
    await gateway_of(request).engines.load(model)
    return json_response({"model": model, "state": ReplicaState.READY})


async def _unload(request: Request) -> Response:
    """Unload a model. Answers when its engines have stopped. ``?force=true`` does not wait for live requests."""
    model = request.path_params["id"]
    await gateway_of(request).engines.unload([model], force=read_flag(request, "force"))
    return json_response({"model": model, "state": ReplicaState.STOPPED})


async def _unload_all(request: Request) -> Response:
    """Unload every model. ``?force=true`` does not wait for live requests."""
    await gateway_of(request).engines.unload(force=read_flag(request, "force"))
    return PlainTextResponse("OK")


async def _running(request: Request) -> Response:
    """Every launched replica that is not stopped."""
    gateway, rows = gateway_of(request), []
    for engine in gateway.engines.running():
        name, backend, model = engine.managed.model_name, engine.managed.backend, engine.managed.model
        upstream = gateway.relay.context.upstreams.get(backend)
        url = "" if upstream is None else upstream.pool.origin.url  # it may be retiring
        texts = (model.name, model.description, model.command)
        rows.append(_RunningEngine(name, backend, engine.shown, *texts, url, model.ttl))
    return json_response({"running": rows})


async def _explain_swap(request: Request) -> Response:
    """The replicas that would stop so that a model can run, as in ``enginehouse explain swap``."""
    question = await read_body(request, _SwapQuestion, '{"target": "MODEL", "running": ["MODEL"]}')
    target, host = gateway_of(request).engines.host_of(question.target)
    running = question.running
    if running is None:
        running = [host.engines[replica].managed.model_name for replica in host.queue.least_recently_used()]
    return json_response(explain_swap(host.swapper, host.facts, target, running))


async def _drain(request: Request) -> Response:
    """Send no new requests to a backend, and move its streams away. Answers at once, with the live requests.

    With ``?before_stop=true``, a backend that ``_stop`` refuses is refused here, and nothing changes.
    """
    name, relay = request.path_params["name"], gateway_of(request).relay
    if read_flag(request, "before_stop"):
        _check_stoppable(request, name)
    relay.context.fleet.drain(name)
    relay.drains.begin(name)
    return json_response({"backend": name, "draining": True, "live": len(relay.drains.live(name))})


async def _undrain(request: Request) -> Response:
    """Send new requests to a backend again."""
    name, relay = request.path_params["name"], gateway_of(request).relay
    relay.context.fleet.undrain(name)
    return json_response({"backend": name, "draining": False, "live": len(relay.drains.live(name))})


async def _stop(request: Request) -> Response:
    """Stop the engine of a drained backend that the gateway launched. Answers when it has stopped."""
    name, relay = request.path_params["name"], gateway_of(request).relay
    _check_stoppable(request, name)
    if left := len(relay.drains.live(name)):
        raise InvalidRequest(f"Backend '{name}' still has {left} live requests; drain it first")
    await gateway_of(request).engines.stop(name)
    return json_response({"backend": name, "state": ReplicaState.STOPPED})


def _check_stoppable(request: Request, name: str) -> None:
    """Raise ``NotFound``, or ``InvalidRequest`` if the gateway neither launches nor loads anything at a backend."""
    gateway = gateway_of(request)
    gateway.relay.context.fleet.health(name)  # raises NotFound
    gateway.engines.stoppable(name)


async def _reload(request: Request) -> Response:
    """Reload the configuration; with ``?dry_run=true``, only return the changes.

    With ``?take_over=true``, another gateway takes over, so that everything in the configuration applies.
    """
    dry_run, take_over = read_flag(request, "dry_run"), read_flag(request, "take_over")
    gateway = gateway_of(request)
    try:
        reloaded = await gateway.reload(dry_run or take_over)
        if take_over and not dry_run:
            pid = await _take_over(gateway.replacement())
            reloaded = msgspec.structs.replace(reloaded, applied=True, taken_over_by=pid)
        return json_response(reloaded)
    except RequestError:
        raise
    except EnginehouseError as error:
        text = f"The configuration cannot be used, and nothing has changed:\n{error}"
        rows = error.rows()
        refused = InvalidRequest(text, details={"errors": rows})
        if len(codes := {row["code"] for row in rows}) == 1:
            vars(refused).update(code=codes.pop())
        raise refused from None


async def _take_over(replace: Callable[[], Awaitable[int]] | None) -> int:
    if replace is None:
        raise InvalidRequest("This gateway was not started by `enginehouse serve`: nothing can take over from it")
    return await replace()


LIFECYCLE_ROUTES = [
    Route("/api/models/{id:path}/load", _load, methods=["POST"]),
    Route("/api/models/{id:path}/unload", _unload, methods=["POST"]),
    Route("/api/explain/swap", _explain_swap, methods=["POST"]),
    Route("/running", _running),
    Route("/unload", _unload_all, methods=["GET", "POST"]),
    Route("/api/backends/{name:path}/drain", _drain, methods=["POST"]),
    Route("/api/backends/{name:path}/undrain", _undrain, methods=["POST"]),
    Route("/api/backends/{name:path}/stop", _stop, methods=["POST"]),
    Route("/api/reload", _reload, methods=["POST"]),
]
