"""The Starlette application with all pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from enginehouse.api.errors import on_failure, on_http_exception, on_request_error
from enginehouse.domain.errors import RequestError


def build_application(
    routes: Sequence[BaseRoute], methods: Callable[[str], Sequence[str]], *, cors: Sequence[str], exposed: Sequence[str]
) -> Starlette:
    """The application with ``routes``. Pages of the origins in ``cors`` may call it, and read the ``exposed`` headers.

    ``methods``: those that engines answer at a path; if there are any, others get 405 there.
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
        routes=[_OtherMethods(methods), *routes],
        middleware=middleware,
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception, Exception: on_failure},
    )
    application.router.redirect_slashes = False  # Starlette would redirect to whatever ``Host`` says
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
