"""Pages of services for everyone with a key."""

from __future__ import annotations

from starlette.routing import BaseRoute, Match, Router
from starlette.types import Receive, Scope, Send

from enginehouse.api.admission import Admission
from enginehouse.api.errors import refuse
from enginehouse.api.request_headers import headers_of
from enginehouse.domain.errors import RequestError


class CallerPages(BaseRoute):
    """Pages as one route, which admits callers. So no page can miss the check. ``pages`` may change."""

    def __init__(self, admission: Admission, pages: list[BaseRoute]) -> None:
        self._admission = admission
        self._pages = Router(redirect_slashes=False)
        self._pages.routes = pages

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        best = max((page.matches(scope)[0].value for page in self._pages.routes), default=Match.NONE.value)
        return Match(best), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._admission.admit_caller(headers_of(scope))
        except RequestError as error:
            await refuse(scope, receive, send, error)
            return
        await self._pages(scope, receive, send)
