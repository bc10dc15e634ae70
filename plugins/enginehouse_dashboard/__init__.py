"""The page ``/dashboard``: the gateway's state in a web browser."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import Register, hookimpl

_ASSETS = {
    "/dashboard": ("dashboard.html", "text/html"),
    "/dashboard/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard/dashboard.js": ("dashboard.js", "text/javascript"),
}
_HEADERS = {
    "cache-control": "no-cache",
    # No page of another origin may frame the buttons, and text of clients never becomes a script.
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def dashboard_routes() -> list[BaseRoute]:
    """The page and its script. They hold no facts, so everyone may read them; the facts come from ``/api``."""
    folder = files(__name__) / "assets"
    return [
        Route(path, partial(_asset, content=(folder / name).read_bytes(), media_type=media_type))
        for path, (name, media_type) in _ASSETS.items()
    ]


async def _asset(request: Request, content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type, headers=_HEADERS)


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Register the dashboard's page."""
    register("dashboard", dashboard_routes)
