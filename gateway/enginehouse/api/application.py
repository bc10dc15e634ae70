"""The Starlette application: everything that is not hot, and the ASGI door for what is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route

from enginehouse.api.asgi_door import AsgiDoor
from enginehouse.api.entrance import INFERENCE_PATHS, Entrance
from enginehouse.api.errors import on_failure, on_http_exception, on_request_error
from enginehouse.domain.errors import RequestError

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def build_application(
    entrance: Entrance, routes: Sequence[BaseRoute], *, cors: Sequence[str], lifespan: Lifespan
) -> Starlette:
    """The application with the inference endpoints and ``routes``; ``cors`` are the origins that may call it."""
    door = AsgiDoor(entrance)
    inference = [Route(path, door, methods=["POST"]) for path in INFERENCE_PATHS]
    middleware = []
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
    return Starlette(
        routes=[*inference, *routes],
        middleware=middleware,
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception, Exception: on_failure},
        lifespan=lifespan,
    )
