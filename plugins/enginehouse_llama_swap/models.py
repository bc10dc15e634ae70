"""What llama-swap's tools ask and do about models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from enginehouse_llama_swap.own_pages import OutsideRoute, ask

_STATES: Final[Mapping[str, str]] = {"loaded": "ready", "loading": "starting"}
"""The state of a model in our list, and llama-swap's word for it. It has none for a sleeping one."""
_DISABLED: Final = {"enabled": False}


async def model_status(request: Request) -> list[dict[str, Any]]:
    """Every listed model as the message ``modelStatus`` has it; aliases are no models of their own."""
    cards = (await ask(request, "GET", "/v1/models")).json()["data"]
    aliases: dict[str, list[str]] = {}
    for card in cards:
        if card["root"] != card["id"]:
            aliases.setdefault(card["root"], []).append(card["id"])
    peers = await _peers(request)
    return [_status(card, aliases, peers) for card in cards if card["root"] == card["id"]]


async def _peers(request: Request) -> dict[str, str]:
    """The models that other servers serve, each with the backend that does: what runs, but was not launched."""
    replicas = (await ask(request, "GET", "/api/status")).json()["replicas"]
    launched = {each["model"] for each in (await ask(request, "GET", "/running")).json()["running"]}
    ready = {each["model"]: each["backend"] for each in replicas if each["state"] == "ready"}
    return {model: backend for model, backend in ready.items() if model not in launched}


def _status(card: Mapping[str, Any], aliases: Mapping[str, list[str]], peers: Mapping[str, str]) -> dict[str, Any]:
    status = {
        "id": card["id"],
        "name": card.get("name", ""),
        "description": card.get("description", ""),
        "state": _STATES.get(card["status"]["value"], "stopped"),
        "unlisted": False,
        "peerID": peers.get(card["id"], ""),
        "aliases": aliases.get(card["id"], []),
    }
    optional = {"capabilities": card.get("capabilities"), "context_length": card.get("max_model_len")}
    return status | {key: value for key, value in optional.items() if value}


async def _models(request: Request) -> Response:
    return (await ask(request, "GET", "/v1/models")).response()


async def _unload_all(request: Request) -> Response:
    """Unload every model. Live requests are cut off, as llama-swap does."""
    answer = await ask(request, "POST", "/unload", force="true")
    return JSONResponse({"msg": "ok"}) if answer.status < 400 else answer.response()


async def _unload(request: Request) -> Response:
    answer = await ask(request, "POST", f"/api/models/{request.path_params['model']}/unload", force="true")
    return PlainTextResponse("OK") if answer.status < 400 else answer.response()


async def _cancel(request: Request) -> Response:
    answer = await ask(request, "DELETE", f"/api/requests/{request.path_params['id']}")
    return JSONResponse({"msg": "ok"}) if answer.status < 400 else answer.response()


async def _profiles(request: Request) -> Response:
    """None: an importer makes aliases of the first one (see the note there)."""
    (await ask(request, "GET", "/running")).json()  # for its check of the key
    return JSONResponse({"active": None, "profiles": []})


async def _version(request: Request) -> Response:
    """``version`` stays the one that Ollama's clients ask for at the same path."""
    own = (await ask(request, "GET", "/api/status")).json()["version"]
    page = await ask(request, "GET", "/api/version")
    version = msgspec.json.decode(page.body)["version"] if page.status == 200 else own
    return JSONResponse({"version": version, "commit": f"enginehouse {own}", "build_date": "unknown"})


async def _disabled(request: Request) -> Response:
    """The figures of the machine, which llama-swap answers so where they are switched off."""
    (await ask(request, "GET", "/running")).json()
    return JSONResponse(_DISABLED, 503)


async def _no_capture(request: Request) -> Response:
    (await ask(request, "GET", "/running")).json()
    error = {"message": "The gateway keeps no requests and answers", "type": "invalid_request_error"}
    return JSONResponse({"src": "enginehouse", "error": {**error, "param": None, "code": "not_found"}}, 404)


async def _to_the_page(request: Request) -> Response:
    return RedirectResponse("/dashboard", 302)


async def _alive(request: Request) -> Response:
    return PlainTextResponse("OK")


MODEL_ROUTES: Final[list[BaseRoute]] = [
    OutsideRoute("/models", _models),
    OutsideRoute("/api/models/unload", _unload_all, methods=["POST"]),
    OutsideRoute("/api/models/unload/{model:path}", _unload, methods=["POST"]),
    OutsideRoute("/api/inflight/{id:path}/cancel", _cancel, methods=["POST"]),
    OutsideRoute("/api/profiles", _profiles),
    OutsideRoute("/api/version", _version),
    OutsideRoute("/api/performance", _disabled),
    OutsideRoute("/api/hardware", _disabled),
    OutsideRoute("/api/captures/{id}", _no_capture),
    OutsideRoute("/upstream", _to_the_page),
    OutsideRoute("/wol-health", _alive),
]
