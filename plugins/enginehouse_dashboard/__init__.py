"""The page ``/dashboard``: the gateway in a web browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse import Register, hookimpl

_PAGE = "/dashboard"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "cache-control": "no-cache",
    # No page of another origin may frame the buttons, and text of clients never becomes a script.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def dashboard_routes() -> list[BaseRoute]:
    """The page, and the way to it from ``/`` and ``/ui``. It holds no facts, so everyone may read it.

    The facts come from ``/api``.
    """
    return [*_routes()]


@cache
def _routes() -> tuple[BaseRoute, ...]:
    found = dict(_assets(Path(__file__).with_name("assets"), _PAGE))
    page = found.pop(f"{_PAGE}/index.html")
    assets = [Route(path, asset) for path, asset in {_PAGE: page, **found}.items()]
    return (*assets, Route("/", _to_page), Route("/ui", _to_page))


def _assets(folder: Path, path: str) -> Iterator[tuple[str, Any]]:
    """The page of every file in ``folder`` and the folders in it, by its path below ``path``."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _assets(each, f"{path}/{each.name}")
        elif media_type := _TYPES.get(each.suffix):
            yield f"{path}/{each.name}", partial(_asset, content=each.read_bytes(), media_type=media_type)


async def _asset(request: Request, content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type, headers=_HEADERS)


async def _to_page(request: Request) -> Response:
    return RedirectResponse(_PAGE, headers=_HEADERS)


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Register the dashboard's page."""
    register("dashboard", dashboard_routes)
