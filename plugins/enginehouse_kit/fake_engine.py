"""A fake engine for tests, without a process, and a share of the memory for engines' answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from enginehouse.continuers import read_events
from enginehouse.drivers import EngineResponse
from enginehouse.errors import UpstreamError
from enginehouse_kit.expect import expect


class FakeEngineClient:
    """The client of a fake engine. ``pages`` has for each path JSON or bytes (200), a status, or an exception to raise.

    ::

        engine = FakeEngineClient({"/health": 503, "/v1/models": {"data": [{"id": "llama3:8b"}]}})
        assert not await MyDriver().healthy(engine)
        assert engine.asked == ["/health"]

    Every other path answers ``otherwise``. ``asked`` has the requested paths so far.
    """

    def __init__(self, pages: Mapping[str, Any] | None = None, *, otherwise: Any = 404) -> None:
        self.pages = dict(pages or {})
        self.otherwise = otherwise
        self.asked: list[str] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Answer with the page of ``path``."""
        page = self._page(path)
        if isinstance(page, int):
            return EngineResponse(page, [], b"{}")
        return EngineResponse(200, [], page if isinstance(page, bytes) else msgspec.json.encode(page))

    async def follow(self, path: str, on_event: Callable[[bytes], None]) -> None:
        """Bring the events of the page of ``path``, which are bytes, and end."""
        page = self._page(path)
        for event in read_events(page) if isinstance(page, bytes) else ():
            if event.data is not None:
                on_event(event.data)
        raise UpstreamError("its events have ended")

    def _page(self, path: str) -> Any:
        expect(path.startswith("/"), f"a driver must request a path that begins with '/', got {path!r}")
        self.asked.append(path)
        page = self.pages.get(path, self.otherwise)
        if isinstance(page, Exception):
            raise page
        return page


class FakeShare:
    """Counts the bytes that are held. A ``MemoryShare``; ``FakeShare`` itself makes them, as a ``NewShare`` does."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.size = 0

    def take(self, size: int) -> str:
        """Count ``size`` more bytes."""
        self.size += size
        return ""

    def give_back(self) -> None:
        """Count all bytes out."""
        self.size = 0
