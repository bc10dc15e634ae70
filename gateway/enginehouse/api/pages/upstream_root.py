"""``/upstream/{model}`` leads to ``/upstream/{model}/``, as relative links of an engine's pages need it."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from enginehouse.api.admission import Admission
from enginehouse.api.request_headers import headers_of


class UpstreamRoot(BaseRoute):
    """Redirects requests for a known model without a path behind it. All others below ``/upstream/`` are relayed."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and scope.get("raw_path", b"").startswith(b"/upstream/")
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._admission.admit_direct(headers_of(scope))
        status = 301 if scope["method"] in ("GET", "HEAD") else 308  # browsers turn a POST that got 301 into a GET
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        await RedirectResponse((scope["raw_path"] + b"/" + query).decode("latin-1"), status)(scope, receive, send)
