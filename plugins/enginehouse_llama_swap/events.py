"""``/api/events`` as llama-swap's page reads it.

llama-swap's messages are events without a name, the gateway's own all have one. So both are in one stream: each page
reads its own and never sees the other's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from enginehouse_llama_swap.models import model_status
from enginehouse_llama_swap.own_pages import OutsideRoute, Refused, ask, follow

_log = logging.getLogger(__name__)

_PACE_S: Final = 0.25
"""Seconds between two messages of one kind, as in llama-swap."""
_OF_MODELS: Final = (b"event: snapshot", b"event: replica_state", b"event: swap_")
_OF_REQUESTS: Final = (b"event: snapshot", b"event: request_")
_OF_ENDS: Final = b"event: request_finished"
_SESSIONS: Final = {"activity": {"session_id": ["X-Session-ID"]}}
_MOST_FRAMES: Final = 256
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
Frames = AsyncGenerator[bytes, None]


def message(type: str, data: Any) -> bytes:
    """One message of llama-swap: JSON in a text in JSON."""
    inner = msgspec.json.encode(data).decode()
    return b"event:message\ndata:%s\n\n" % msgspec.json.encode({"type": type, "data": inner})


class _Stream:
    """The gateway's events, the lines of its logs and llama-swap's messages about both, in one queue."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_FRAMES)
        self._due: set[Callable[[], Any]] = set()
        self._changed = asyncio.Event()

    async def run(self) -> Frames:
        """Yield frames until the gateway's own events end, or no message about them can be made: a page asks again."""
        yield message("uiConfig", _SESSIONS)
        yield message("profileChanged", {"active": None})
        ends = (self._to_the_end(self._events()), self._to_the_end(self._send_due()))
        tasks = {asyncio.ensure_future(source) for source in (*ends, self._log("proxy"), self._log("upstream"))}
        try:
            while (frame := await self._frames.get()) is not None:
                yield frame
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _to_the_end(self, source: Coroutine[Any, Any, None]) -> None:
        """Run ``source``, and end the stream with it."""
        try:
            await source
        except Refused as refused:
            _log.debug("The gateway's own pages ended a stream of events: %s", refused)
        except Exception:
            _log.exception("A stream of events failed")
        await self._frames.put(None)

    async def _events(self) -> None:
        """Pass the gateway's events on, and note which messages they call for."""
        async for piece in follow(self._request, "/api/events"):
            await self._frames.put(piece)
            if any(kind in piece for kind in _OF_MODELS):
                self._due.add(self._models)
            if any(kind in piece for kind in _OF_REQUESTS):
                self._due.add(self._in_flight)
            if _OF_ENDS in piece:
                await self._frames.put(message("activity", {"id": 0}))
            self._changed.set()

    async def _log(self, source: str) -> None:
        with suppress(Refused):
            async for piece in follow(self._request, f"/logs/stream/{source}"):
                await self._frames.put(message("logData", {"source": source, "data": piece.decode(errors="replace")}))

    async def _send_due(self) -> None:
        """Send the messages that are due, at most so many in a second."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            due, self._due = self._due, set()
            for make in due:
                await self._frames.put(await make())
            await asyncio.sleep(_PACE_S)

    async def _models(self) -> bytes:
        return message("modelStatus", await model_status(self._request))

    async def _in_flight(self) -> bytes:
        rows = (await ask(self._request, "GET", "/api/requests")).json()["requests"]
        return message("inflight", {"operation": "snapshot", "requests": [_in_flight(row) for row in rows]})


def _in_flight(row: dict[str, Any]) -> dict[str, Any]:
    began = datetime.now(timezone.utc) - timedelta(milliseconds=row["age_ms"])
    metadata = {name: str(row[name]) for name in ("phase", "replica", "position") if row[name] is not None}
    return {
        "id": row["id"],
        "timestamp": began.isoformat(),
        "model": row["model"] or "",
        "req_path": row["path"],
        "method": "POST",
        "req_headers": {},
        "remote_ip": row["address"],
        "resp_headers": {},
        "resp_bytes": 0,
        "elapsed_ms": round(row["age_ms"]),
        "metadata": metadata,
    }


async def _watch(request: Request) -> Response:
    """The stream."""
    (await ask(request, "GET", "/running")).json()  # its check of the key
    return StreamingResponse(_Stream(request).run(), media_type="text/event-stream", headers=_HEADERS)


EVENT_ROUTES: Final[list[BaseRoute]] = [OutsideRoute("/api/events", _watch)]
