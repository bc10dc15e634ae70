"""The Starlette application: all pages, and the inference endpoints through the ASGI door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from enginehouse.api.doors.admission import FORM_PATHS, Admission
from enginehouse.api.doors.asgi import AsgiDoor, headers_of
from enginehouse.api.doors.form import FormDoor
from enginehouse.api.doors.framing import check_host
from enginehouse.api.errors import on_failure, on_http_exception, on_request_error, refuse
from enginehouse.domain.errors import InvalidRequest, RequestError


def build_application(admission: Admission, routes: Sequence[BaseRoute], *, cors: Sequence[str]) -> Starlette:
    """The application with the inference endpoints and ``routes``. Pages of the origins in ``cors`` may call it."""
    doors: Mapping[str, ASGIApp] = {
        **dict.fromkeys(admission.hot_paths.values(), AsgiDoor(admission)),
        **dict.fromkeys(FORM_PATHS, FormDoor(admission)),
    }
    inference = [Route(path, door, methods=["POST"]) for path, door in doors.items()]
    middleware = [Middleware(_HostCheck)]
    if cors:
        exposed = ["x-request-id", *(f"x-enginehouse-{name}" for name in ("backend", "model", "reason", "overhead-us"))]
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=exposed,
            )
        )
    middleware.append(Middleware(_ExitGuard))
    application = Starlette(
        routes=[*inference, *routes],
        middleware=middleware,
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception, Exception: on_failure},
    )
    application.router.redirect_slashes = False  # Starlette would redirect to whatever ``Host`` says
    return application


class _HostCheck:
    """Refuses requests without ``Host`` or with two, because not every server does (RFC 9112, 3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                check_host(scope.get("http_version", ""), headers_of(scope))
            except InvalidRequest as error:
                await refuse(scope, receive, send, error)
                return
        await self._app(scope, receive, send)


class _ExitGuard:
    """Turns ``SystemExit`` and ``KeyboardInterrupt`` into failures: a page of a plugin must not end the gateway."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"A page raised {type(error).__name__}") from error
