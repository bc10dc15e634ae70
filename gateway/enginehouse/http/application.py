"""The Starlette application with all pages, and its errors in the forms of clients' protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from enginehouse.domain.errors import RequestError
from enginehouse.http.relayed_paths import RelayedPaths


def build_application(
    routes: Sequence[BaseRoute], paths: RelayedPaths, *, cors: Sequence[str], exposed: Sequence[str]
) -> Starlette:
    """The application with ``routes``. Pages of the origins in ``cors`` may call it, and read the ``exposed`` headers.

    ``paths``: where engines answer a method, others get 405.
    """
    middleware = []
    if cors:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=list(exposed),
            )
        )
    middleware.append(Middleware(_ExitGuard))
    application = Starlette(
        routes=[_OtherMethods(paths.methods), *routes],
        middleware=middleware,
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception, Exception: on_failure},
    )
    application.router.redirect_slashes = False  # Starlette would redirect to whatever ``Host`` says
    application.state.paths = paths
    return application


class _OtherMethods(BaseRoute):
    """Refuses other methods than those of engines at their paths."""

    def __init__(self, methods: Callable[[str], Sequence[str]]) -> None:
        self._methods = methods

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and self._methods(scope["path"])
        return (Match.PARTIAL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(405, headers={"Allow": ", ".join(self._methods(scope["path"]))})


class _ExitGuard:
    """Turns ``SystemExit`` and ``KeyboardInterrupt`` into failures: a page of a plugin must not end the gateway."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"A page raised {type(error).__name__}") from error


async def on_request_error(request: Request, error: Exception) -> Response:
    """Answer a ``RequestError``."""
    return _refusal(request.scope, cast(RequestError, error), request.app.state.paths)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer an error of Starlette: an unknown path, or a method that is not allowed."""
    error = cast(HTTPException, error)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    message = f"{request.method} {request.url.path}: {error.detail}"
    if code == "not_found" and getattr(request.app.state, "disables_plugins", False):
        message += "; if a disabled plugin answers there, take it out of plugins.disabled"
    envelope = _envelope(message, "invalid_request_error", code)
    return _told(request.scope, envelope, error.status_code, error.headers, request.app.state.paths)


async def on_failure(request: Request, error: Exception) -> Response:
    """Answer a defect of the gateway. Details are only in the log."""
    envelope = _envelope("Internal error; see the gateway's log", "server_error", "internal_error")
    return _told(request.scope, envelope, 500, None, request.app.state.paths)


async def refuse(scope: Scope, receive: Receive, send: Send, error: RequestError, paths: RelayedPaths) -> None:
    """Answer the HTTP request or the WebSocket of ``scope``, of which nothing was received yet."""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
    await _refusal(scope, error, paths)(scope, receive, send)


def _refusal(scope: Scope, error: RequestError, paths: RelayedPaths) -> Response:
    headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else None
    return _told(scope, error.envelope(), error.status, headers, paths)


def _told(
    scope: Scope, envelope: dict[str, Any], status: int, headers: Mapping[str, str] | None, paths: RelayedPaths
) -> Response:
    return Response(paths.error(scope["path"], status, envelope), status, headers, "application/json")


def _envelope(message: str, type: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": None, "code": code, "details": {}}}
