"""The application's errors as OpenAI's envelopes."""

from __future__ import annotations

from typing import cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from enginehouse.domain.errors import RequestError


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``content``, JSON-encoded."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


async def on_request_error(request: Request, error: Exception) -> Response:
    """Answer a ``RequestError``."""
    return _refusal(cast(RequestError, error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer an error of Starlette: an unknown path, or a method that is not allowed."""
    error = cast(HTTPException, error)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    message = f"{request.method} {request.url.path}: {error.detail}"
    if code == "not_found" and getattr(request.app.state, "disables_plugins", False):
        message += "; if a disabled plugin answers there, take it out of plugins.disabled"
    envelope = _envelope(message, "invalid_request_error", code)
    return json_response(envelope, error.status_code, dict(error.headers or {}))


async def on_failure(request: Request, error: Exception) -> Response:
    """Answer a defect of the gateway. Details are only in the log."""
    return json_response(_envelope("Internal error; see the gateway's log", "server_error", "internal_error"), 500)


async def refuse(scope: Scope, receive: Receive, send: Send, error: RequestError) -> None:
    """Answer the HTTP request or the WebSocket of ``scope``, of which nothing was received yet."""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
    await _refusal(error)(scope, receive, send)


def _refusal(error: RequestError) -> Response:
    headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else None
    return json_response(error.envelope(), error.status, headers)


def _envelope(message: str, type: str, code: str) -> dict[str, object]:
    return {"error": {"message": message, "type": type, "param": None, "code": code, "details": {}}}
