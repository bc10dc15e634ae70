"""``POST /api/pull`` and ``DELETE /api/delete``: clients of Ollama download models of the gateway, and delete them.

https://github.com/ollama/ollama/blob/main/docs/api.md has the forms. A model that the gateway serves is there already,
wherever its engine has it from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from enginehouse.errors import PullFailed
from enginehouse.model_sources import PulledModels
from enginehouse.pages import PageFacts

_SUCCESS = {"status": "success"}
_LINES = "application/x-ndjson"
_AT_ONCE: Final = 4
"""So many models are downloaded at a time. The others wait, and so do no requests: these threads are their own."""


class _Wanted(msgspec.Struct):
    """A model, in either of two fields."""

    model: str = ""
    name: str = ""
    stream: bool = True


def pull_routes() -> list[Route]:
    """The pages of one gateway."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def pull(request: Request) -> Response:
        return await _pull(request, turn)

    return [Route("/api/pull", pull, methods=["POST"]), Route("/api/delete", _delete, methods=["DELETE"])]


async def _pull(request: Request, turn: asyncio.Semaphore) -> Response:
    """Download a model; its progress as lines of JSON, or one answer at the end with ``"stream": false``."""
    facts: PageFacts = request.app.state.facts
    models = facts.pulled()
    try:
        wanted = await _read(request)
        if not _is_served(facts, name := _named(wanted)):
            models.check(name)
    except (ValueError, RecursionError, PullFailed) as error:
        return _answer({"error": str(error)}, 400)
    lines = _lines(facts, models, name, turn)
    if wanted.stream:
        return StreamingResponse((msgspec.json.encode(line) + b"\n" async for line in lines), 200, None, _LINES)
    last: dict[str, Any] = {}
    async for line in lines:
        last = line
    return _answer(last, 500 if "error" in last else 200)


async def _lines(
    facts: PageFacts, models: PulledModels, name: str, turn: asyncio.Semaphore
) -> AsyncIterator[dict[str, Any]]:
    """The states of a download. It ends when nobody reads on, or the gateway stops; what is there then is kept."""
    yield {"status": "pulling manifest"}
    if _is_served(facts, name):
        yield _SUCCESS
        return
    download = _Download(models, name)
    stopping = asyncio.ensure_future(facts.closing.wait())  # the thread only looks when bytes arrive
    stopping.add_done_callback(lambda _: download.end({"error": download.why}))
    starting = asyncio.ensure_future(download.start(turn))
    try:
        while not download.ended:
            await download.news.wait()
            download.news.clear()
            yield download.state
    finally:
        download.given_up.set()
        starting.cancel()
        stopping.cancel()


class _Download:
    """One download in a thread of its own. ``state``: the last line; ``news``: it has changed."""

    def __init__(self, models: PulledModels, name: str) -> None:
        self.state: dict[str, Any] = {}
        self.news = asyncio.Event()
        self.ended = False
        self.given_up = Event()
        self.why = f"The download of '{name}' was abandoned: pull again to resume it"
        self._models = models
        self._name = name
        self._loop = asyncio.get_running_loop()

    async def start(self, turn: asyncio.Semaphore) -> None:
        """Begin when it is its turn, which ends with the thread."""
        await turn.acquire()
        Thread(target=self._pull, args=(turn,), name="pull", daemon=True).start()

    def end(self, state: dict[str, Any]) -> None:
        """Note how it ended, unless it has ended."""
        if not self.ended:
            self.ended = True
            self._show(state)

    def _pull(self, turn: asyncio.Semaphore) -> None:
        try:
            self._models.pull(self._name, self._progress)
            state = _SUCCESS
        except Exception as error:
            state = {"error": str(error)}
        with suppress(RuntimeError):  # the gateway is gone
            self._loop.call_soon_threadsafe(turn.release)
            self._loop.call_soon_threadsafe(self.end, state)

    def _progress(self, done: int, total: int | None) -> None:
        if self.given_up.is_set():
            raise PullFailed(self.why)
        size = {} if total is None else {"total": total}
        state = {"status": f"pulling {self._name}", "digest": self._name, "completed": done} | size
        self._loop.call_soon_threadsafe(self._show, state)

    def _show(self, state: dict[str, Any]) -> None:
        self.state = state
        self.news.set()


def _is_served(facts: PageFacts, name: str) -> bool:
    return name.removesuffix(":latest") in {each.removesuffix(":latest") for each in facts.models()}


async def _delete(request: Request) -> Response:
    """Delete the files of a downloaded model."""
    models: PulledModels = request.app.state.facts.pulled()
    try:
        wanted = await _read(request)
        note = await asyncio.to_thread(models.get, _named(wanted))
    except (ValueError, RecursionError) as error:
        return _answer({"error": str(error)}, 400)
    except PullFailed as error:
        return _answer({"error": str(error)}, 404)
    await asyncio.to_thread(models.remove, note)
    return Response()


def _named(wanted: _Wanted) -> str:
    """The name of the model. Raises ``ValueError`` without one."""
    if name := wanted.model or wanted.name:
        return name
    raise ValueError("model is required")


async def _read(request: Request) -> _Wanted:
    return msgspec.json.decode(await request.body(), type=_Wanted)


def _answer(content: dict[str, Any], status: int) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
