"""``/api/keys``: the keys of clients, and those that operators make at run time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.callers import KeySettings, LimitLeft
from enginehouse.pages import json_response
from enginehouse_callers.kept_key import NewKey
from enginehouse_callers.kept_keys import KeptKeys


class KeyPages:
    """Serves ``kept`` keys. ``configured`` returns those of the configuration, which cannot be changed here.

    ``is_open``: whether nobody needs a credential yet. ``left``: what is left of the limits of a key.
    ``last_used``: when each caller was last seen.
    """

    def __init__(
        self,
        kept: KeptKeys,
        configured: Callable[[], Sequence[KeySettings]],
        is_open: Callable[[], bool],
        left: Callable[[str], Sequence[LimitLeft]],
        last_used: Callable[[], Awaitable[Mapping[str, float]]],
    ) -> None:
        self._kept = kept
        self._configured = configured
        self._is_open = is_open
        self._left = left
        self._last_used = last_used

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/keys", self.list, methods=["GET"]),
            Route("/api/keys", self.new, methods=["POST"]),
            Route("/api/limits", self.limits, methods=["GET"]),
            Route("/api/keys/{name:path}/rotate", self.rotate, methods=["POST"]),
            Route("/api/keys/{name:path}", self.revoke, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """All keys, without their secrets. ``source``: ``configuration`` or ``api``."""
        used = await self._last_used()
        configured = [_row(key) | {"last_used": used.get(key.name)} for key in self._configured()]
        kept = [{"source": "api", **row} for row in self._kept.rows()]
        return json_response({"keys": [*configured, *kept]})

    async def limits(self, request: Request) -> Response:
        """What is left of the limits of each key that has any."""
        names = [*(key.name for key in self._configured()), *(str(row["name"]) for row in self._kept.rows())]
        return json_response({"limits": {name: left for name in names if (left := self._left(name))}})

    async def new(self, request: Request) -> Response:
        """Make a key. Only this answer has its secret."""
        try:
            asked = msgspec.json.decode(await request.body(), type=NewKey)
        except (ValueError, RecursionError) as error:
            remedy = 'send {"name": "NAME"} and further keys as [[auth.keys]] has them'
            raise InvalidRequest(f"{error}; {remedy}") from None
        secret = self._kept.new(asked, first=self._is_open())
        return json_response({"name": asked.name, "key": secret}, 201)

    async def rotate(self, request: Request) -> Response:
        """Give a key another secret. Only this answer has it."""
        name = request.path_params["name"]
        return json_response({"name": name, "key": self._kept.rotate(name)})

    async def revoke(self, request: Request) -> Response:
        """Delete a key."""
        name = request.path_params["name"]
        self._kept.revoke(name)
        return json_response({"revoked": name})


def _row(key: KeySettings) -> dict[str, Any]:
    shown = {name: getattr(key, name) for name in key.__struct_fields__ if name != "key"}
    return {"source": "configuration", **shown, "created": None}
