"""Pages that plugins add to the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from enginehouse.domain.errors import PluginError

if TYPE_CHECKING:  # only pages of metrics need it
    from prometheus_client.core import Metric


class GuardedRoutes(BaseRoute):
    """Routes that only operators may use. The gateway puts its guard in front of them; without it, none matches."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        every_second: Callable[[Any], None] | None,
        measure: Callable[[Any], Iterable[Metric]] | None,
    ) -> None:
        self.routes = tuple(routes)
        for each in self.routes:
            if not isinstance(each, BaseRoute):
                raise TypeError(f"guarded takes Starlette routes, got {each!r}")
        self.every_second, self.measure = every_second, measure

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise PluginError("guarded routes are served by a gateway only")


def guarded(
    routes: Sequence[BaseRoute],
    *,
    every_second: Callable[[Any], None] | None = None,
    measure: Callable[[Any], Iterable[Metric]] | None = None,
) -> list[BaseRoute]:
    """Return ``routes`` with the protection of ``/api``, for a factory of ``register_routes``.

    If keys are set, a request needs an admin key. Otherwise the gateway refuses unknown names in ``Host`` and web pages
    of other origins. Other routes of plugins are open to everyone, even if keys are set.

    ``every_second`` is called with the gateway's ``PageFacts`` before the gateway starts, and at the beginning of each
    second: what the pages show of the past can be sampled there. ``measure`` gets them whenever metrics are wanted, and
    returns some of ``PageFacts.metrics``, which exporters get, too.
    """
    return [GuardedRoutes(routes, every_second, measure)]


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return ``content``, JSON-encoded, as the answer of a page."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
