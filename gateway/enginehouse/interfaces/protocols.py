"""What the gateway itself asks of clients' protocols, whose interface is the kit's ``Protocol``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from enginehouse.domain.errors import NotFound
from enginehouse.interfaces.drivers import EngineClient, ThinkingFields


def no_engine(backend: str) -> EngineClient:
    """The ``engine`` of a request without a gateway. Raises ``NotFound``."""
    raise NotFound(f"There is no backend '{backend}'")


class PageRequest(msgspec.Struct, frozen=True):
    """A request for one of a protocol's pages.

    ``models``: the entries of ``GET /v1/models`` that the caller may use. ``caller``: the name of the client's key;
    empty if no keys are set. ``engine``: returns a client of a backend's engine, or raises ``NotFound``.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    models: Sequence[Mapping[str, Any]]
    caller: str
    engine: Callable[[str], EngineClient] = no_engine


class ClientProtocol(Protocol):
    """A client's protocol: its paths and pages, its errors and what it keeps. Middleware has it translate requests."""

    @property
    def name(self) -> str: ...

    @property
    def paths(self) -> Sequence[str]: ...

    @property
    def other_paths(self) -> Sequence[str]: ...

    @property
    def pages(self) -> Sequence[tuple[str, str]]: ...

    def open(self, folder: Path) -> None: ...

    def error(self, status: int, envelope: Mapping[str, Any]) -> bytes: ...

    async def answer_page(self, request: PageRequest) -> bytes: ...


class TranslatedRequest(Protocol):
    """A request that a protocol has translated."""

    body: bytes
    keep_alive: float | None
    loads: bool

    def body_for(self, thinking: ThinkingFields) -> bytes: ...
