"""Paths of llama-swap that the gateway has under another name."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from enginehouse_kit.protocols import Envelope, Forwarded, Protocol, ProtocolRequest


class Versionless(Protocol):
    """Forwards requests without ``/v``, for servers whose URL has the version, such as ``https://api.z.ai/.../v4``.

    See https://github.com/mostlygeek/llama-swap/issues/728.
    """

    name: ClassVar[str] = "llama_swap"
    paths = (
        *("/v/chat/completions", "/v/completions", "/v/embeddings", "/v/responses"),
        *("/v/messages", "/v/messages/count_tokens", "/v/rerank", "/v/reranking"),
    )

    def translate(self, request: ProtocolRequest) -> Forwarded:
        return Forwarded(request.path.removeprefix("/v"), request.body)

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(envelope)


class PathBelow(BaseRoute):
    """Answers pages below ``prefix`` as those below ``target``."""

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
