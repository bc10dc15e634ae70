"""Most of ``/api``: status, live requests, decisions and explanations."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse.domain.request_facts import MOST
from enginehouse.errors import NotFound
from enginehouse.pages import json_response
from enginehouse.routing.body.read import end_user, read_request
from enginehouse_operations.pages.live_view import LiveView, ended_request
from enginehouse_operations.pages.reading import gateway_of, read_body, read_limit

_OF_GPUS = ("name", "uuid", "total", "used", "free", "utilization")


class _MoveOrder(msgspec.Struct):
    """The body of ``/api/requests/{id}/move``."""

    to: str


async def _status(request: Request) -> Response:
    """The gateway, its backends and its replicas."""
    gateway = gateway_of(request)
    relay, engines = gateway.relay, gateway.engines
    facts = {
        **gateway.about(),
        "requests": len(relay.live),
        "backends": relay.context.fleet.backends(),
        "replicas": LiveView(gateway).status_rows(),
        "hosts": engines.memory(),
        "learned": relay.context.router.strategies.learned(),
        "gpus": [
            {
                "host": host,
                "gpu": gpu.index,
                **{fact: getattr(gpu, fact) for fact in _OF_GPUS},
                "replicas": replicas,
            }
            for host, gpu, replicas in engines.gpus()
        ],
    }
    return json_response(facts)


async def _requests(request: Request) -> Response:
    """Every live request, oldest first."""
    return json_response({"requests": LiveView(gateway_of(request)).requests()})


async def _request(request: Request) -> Response:
    """The request with an id, and how it was routed: the oldest of live ones, else the last that has ended."""
    wanted, gateway = request.path_params["id"], gateway_of(request)
    context = gateway.relay.context
    live = min(gateway.relay.find(wanted), key=lambda live: live.began, default=None)
    found = LiveView(gateway).details(live) if live is not None else ended_request(context.activity, wanted)
    if found is None:
        raise NotFound(f"There is no live request '{wanted}', and none of the last {MOST} had this id")
    decision = next((each for each in context.decisions.last(MOST) if each["request_id"] == wanted), None)
    return json_response({**found, "decision": decision})


async def _cancel(request: Request) -> Response:
    """Cancel all live requests with an id, which clients choose. The answer tells how many there were."""
    wanted = request.path_params["id"]
    found = gateway_of(request).relay.find(wanted)
    if not found:
        raise NotFound(f"There is no live request '{wanted}'")
    for live in found:
        live.cancel()
    return json_response({"cancelled": wanted, "requests": len(found)})


async def _move(request: Request) -> Response:
    """Continue a live stream at another backend."""
    wanted = await read_body(request, _MoveOrder, '{"to": "BACKEND"}')
    moved = await gateway_of(request).relay.move(request.path_params["id"], wanted.to)
    answer = {"id": moved.id, "from": moved.source, "to": moved.destination, "gap_ms": moved.gap_ms}
    return json_response(answer)


async def _decisions(request: Request) -> Response:
    """The last routing decisions, newest first. ``?limit=N``, else 100."""
    most = read_limit(request, MOST)
    return json_response({"decisions": gateway_of(request).relay.context.decisions.last(most)})


async def _explain_route(request: Request) -> Response:
    """The route that the request in the body would get now, as in ``enginehouse explain route``."""
    path, gateway = request.query_params.get("path", "/v1/chat/completions"), gateway_of(request)
    context, live = gateway.relay.context, LiveView(gateway)
    asked = read_request(path, request.headers.raw, await request.body())
    needs = context.router.requirements(asked)
    needs.user = end_user(asked.body, context.hash_users)
    context.router.apply_rules(needs, request.headers.raw, rehearsal=True)
    explanation = context.router.explain(needs, context.fleet.snapshot, context.drivers)
    shown = [msgspec.structs.replace(each, evicts=live.evicted_for(each)) for each in explanation.candidates]
    return json_response(msgspec.structs.replace(explanation, candidates=shown))


OPERATIONS_ROUTES = [
    Route("/api/status", _status),
    Route("/api/requests", _requests),
    Route("/api/requests/{id:path}/move", _move, methods=["POST"]),
    Route("/api/requests/{id:path}", _request, methods=["GET"]),
    Route("/api/requests/{id:path}", _cancel, methods=["DELETE"]),
    Route("/api/decisions", _decisions),
    Route("/api/explain/route", _explain_route, methods=["POST"]),
]
