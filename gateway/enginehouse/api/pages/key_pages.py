"""``/api/keys``: the keys of clients, and those that operators make at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.api.kept_keys import KeptKeys, NewKey
from enginehouse.api.keys import Keyring
from enginehouse.api.pages.reading import read_body
from enginehouse.config.auth import KeySettings


class KeyPages:
    """Serves ``kept`` keys. ``configured`` returns those of the configuration, which cannot be changed here."""

    def __init__(self, keyring: Keyring, kept: KeptKeys, configured: Callable[[], Sequence[KeySettings]]) -> None:
        self._keyring = keyring
        self._kept = kept
        self._configured = configured

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/keys", self.list, methods=["GET"]),
            Route("/api/keys", self.new, methods=["POST"]),
            Route("/api/keys/{name:path}/rotate", self.rotate, methods=["POST"]),
            Route("/api/keys/{name:path}", self.revoke, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """All keys, without their secrets. ``source``: ``configuration`` or ``api``."""
        configured = [_row(key) for key in self._configured()]
        kept = [{"source": "api", **row} for row in self._kept.rows()]
        return json_response({"keys": [*configured, *kept]})

    async def new(self, request: Request) -> Response:
        """Make a key. Only this answer has its secret."""
        asked = await read_body(request, NewKey, '{"name": "NAME"} and further keys as [[auth.keys]] has them')
        secret = self._kept.new(asked, first=self._keyring.is_open)
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
    return {"source": "configuration", **shown, "created": None, "last_used": None}
