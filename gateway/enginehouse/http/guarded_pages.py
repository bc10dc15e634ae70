"""Pages that are guarded as one route, so that none of them can miss the check of who asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import time
from typing import Final

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match, Router
from starlette.types import Message, Receive, Scope, Send

from enginehouse.domain.errors import BodyTooLarge, RequestError
from enginehouse.domain.request import Headers
from enginehouse.domain.usage import AuditEntry
from enginehouse.http.admission import Admission
from enginehouse.http.application import refuse

_log = logging.getLogger("enginehouse.operators")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LARGEST: Final = 8 << 20
"""Bytes of a body. An operator asks with a request of a client at most."""


class CallerPages(BaseRoute):
    """Pages for everyone with a key. ``pages`` may change."""

    def __init__(self, admission: Admission, pages: list[BaseRoute]) -> None:
        self._admit: Callable[[Headers], str] = admission.admit_caller
        self._pages = Router(redirect_slashes=False)
        self._pages.routes = pages

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return self._pages.routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        best = max((page.matches(scope)[0].value for page in self._pages.routes), default=Match.NONE.value)
        return Match(best), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = self._admit(_headers_of(scope))
        except RequestError as error:
            await refuse(scope, receive, send, error, scope["app"].state.paths)
        else:
            await self._answer(scope, receive, send, caller)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, caller: str) -> None:
        """Answer a request of ``caller``, the name of a key; empty if no keys are set."""
        await self._pages(scope, receive, send)


class OperatorPages(CallerPages):
    """Pages for operators. ``note`` gets every act of one: a request that changes something."""

    def __init__(self, admission: Admission, pages: list[BaseRoute], note: Callable[[AuditEntry], None]) -> None:
        super().__init__(admission, pages)
        self._admit = admission.admit_operator
        self._note = note

    async def _answer(self, scope: Scope, receive: Receive, send: Send, caller: str) -> None:
        if _is_act(scope["method"], scope["path"]):
            send = self._reporting(scope, caller, send)
        await self._pages(scope, _bounded(receive), send)

    def _reporting(self, scope: Scope, operator: str, send: Send) -> Send:
        """``send`` that also notes and logs who did what, with the status of the answer."""
        # ascii(): a line break in the path or the name would begin a line of the log that nobody wrote
        client = scope.get("client")
        where, act = client[0] if client else "unknown", f"{scope['method']} {ascii(scope['path'])[1:-1]}"
        who = f"key {ascii(operator)[1:-1]}" if operator else "no key"

        async def report(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                outcome = "done" if status < 400 else "refused" if status < 500 else "failed"
                _log.info("Operator (%s, from %s): %s: %d", who, where, act, status)
                self._note(AuditEntry(time(), operator, where, act, status, outcome))
            await send(message)

        return report


def _bounded(receive: Receive) -> Receive:
    """``receive`` that raises ``BodyTooLarge`` when more than ``_LARGEST`` bytes have come."""
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > _LARGEST:
            raise BodyTooLarge(f"The request body is larger than {_LARGEST} bytes")
        return message

    return receive_bounded


def _is_act(method: str, path: str) -> bool:
    """Whether a request changes something. llama-swap's ``/unload`` does so with ``GET`` too."""
    return path == "/unload" or (method not in _SAFE and not path.startswith("/api/explain/"))


class UpstreamRoot(BaseRoute):
    """Leads ``/upstream/{model}`` to ``/upstream/{model}/``, as relative links of an engine's pages need it.

    All others below ``/upstream/`` are relayed.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and scope.get("raw_path", b"").startswith(b"/upstream/")
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._admission.admit_direct(_headers_of(scope))
        status = 301 if scope["method"] in ("GET", "HEAD") else 308  # browsers turn a POST that got 301 into a GET
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        await RedirectResponse((scope["raw_path"] + b"/" + query).decode("latin-1"), status)(scope, receive, send)


def _headers_of(scope: Scope) -> Headers:
    """The headers of an HTTP request or a WebSocket handshake, with lower-case names."""
    return [(name.lower(), value) for name, value in scope["headers"]]
