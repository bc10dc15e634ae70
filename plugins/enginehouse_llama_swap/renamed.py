"""Paths of llama-swap that the gateway has under another name."""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class PathBelow(BaseRoute):
    """Answers every path below ``prefix`` as the one below ``target``."""

    def __init__(self, prefix: str, target: str) -> None:
        self._prefix = prefix
        self._target = target

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["raw_path"].replace(self._prefix.encode(), self._target.encode(), 1)
        path = self._target + scope["path"].removeprefix(self._prefix)
        await scope["app"]({**scope, "path": path, "raw_path": raw}, receive, send)


RENAMED_ROUTES: Final[list[BaseRoute]] = [PathBelow("/v/", "/v1/")]
