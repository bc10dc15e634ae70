"""Pages for operators."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match, Router
from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.asgi import headers_of
from enginehouse.api.doors.refusal import refuse
from enginehouse.domain.errors import RequestError


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
            self._admission.admit_operator(headers_of(scope))
        except RequestError as error:
            await refuse(scope, receive, send, error)
            return
        await self._pages(scope, receive, send)
