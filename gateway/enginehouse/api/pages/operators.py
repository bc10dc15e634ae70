"""Pages for operators."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Match, Router
from starlette.types import Message, Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.asgi import headers_of
from enginehouse.api.doors.refusal import refuse
from enginehouse.domain.errors import RequestError

_log = logging.getLogger("enginehouse.operators")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class OperatorPages(BaseRoute):
    """Operators' pages as one route, which admits operators. So no page can miss the check."""

    def __init__(self, admission: Admission, pages: Sequence[BaseRoute]) -> None:
        self._admission = admission
        self._pages = Router(pages, redirect_slashes=False)

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return self._pages.routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        best = max((page.matches(scope)[0].value for page in self._pages.routes), default=Match.NONE.value)
        return Match(best), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            operator = self._admission.admit_operator(headers_of(scope))
        except RequestError as error:
            await refuse(scope, receive, send, error)
            return
        if _is_act(scope["method"], scope["path"]):
            send = _reporting(scope, operator, send)
        await self._pages(scope, receive, send)


def _is_act(method: str, path: str) -> bool:
    """Whether a request changes something. llama-swap's ``/unload`` does so with ``GET`` too."""
    return path == "/unload" or (method not in _SAFE and not path.startswith("/api/explain/"))


def _reporting(scope: Scope, operator: str, send: Send) -> Send:
    """``send`` that also logs who did what, with the status of the answer."""
    client = scope.get("client")
    who = f"key {operator}" if operator else "no key"

    async def report(message: Message) -> None:
        if message["type"] == "http.response.start":
            where, path = client[0] if client else "unknown", ascii(scope["path"])[1:-1]
            _log.info("Operator (%s, from %s): %s %s: %d", who, where, scope["method"], path, message["status"])
        await send(message)

    return report
