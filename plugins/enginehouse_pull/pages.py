"""``POST /api/pull`` and ``DELETE /api/delete``: clients of Ollama download models of the gateway, and delete them.

https://github.com/ollama/ollama/blob/main/docs/api.md has the forms. A model that the gateway serves is there already,
wherever its engine has it from.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from enginehouse.errors import PullFailed
from enginehouse.model_sources import Download, PulledModels, PullProgress
from enginehouse.pages import PageFacts, json_response

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
        return json_response({"error": str(error)}, 400)
    lines = _lines(facts, models, name, turn)
    if wanted.stream:
        return StreamingResponse((msgspec.json.encode(line) + b"\n" async for line in lines), 200, None, _LINES)
    last: dict[str, Any] = {}
    async for line in lines:
        last = line
    return json_response(last, 500 if "error" in last else 200)


async def _lines(
    facts: PageFacts, models: PulledModels, name: str, turn: asyncio.Semaphore
) -> AsyncIterator[dict[str, Any]]:
    """The states of a download. It ends when nobody reads on, or the gateway stops; what is there then is kept."""
    yield {"status": "pulling manifest"}
    if _is_served(facts, name):
        yield _SUCCESS
        return
    state, news = dict[str, Any](), asyncio.Event()
    digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"  # of the whole; Ollama's command shows a part of it

    def show(done: int, total: int | None) -> None:
        size = {} if total is None else {"total": total}
        state.update(status=f"pulling {name}", digest=digest, completed=done, **size)
        news.set()

    pulling = asyncio.ensure_future(_pulled(models, name, turn, show))
    stopping = asyncio.ensure_future(facts.closing.wait())  # the thread only looks when bytes arrive
    for each in (pulling, stopping):
        each.add_done_callback(lambda _: news.set())
    try:
        while not (pulling.done() or stopping.done()):
            await news.wait()
            news.clear()
            if state:
                line = {**state}
                state.clear()  # before the client reads: there may be more by then
                yield line
        abandoned = {"error": f"The download of '{name}' was abandoned: pull again to resume it"}
        yield pulling.result() if pulling.done() else abandoned
    finally:
        pulling.cancel()
        stopping.cancel()


async def _pulled(models: PulledModels, name: str, turn: asyncio.Semaphore, show: PullProgress) -> dict[str, Any]:
    """Download a model when it is its turn, which ends with the download. Returns the last line."""
    await turn.acquire()
    download = Download(models, name)
    download.task.add_done_callback(lambda _: turn.release())
    download.listeners.append(show)
    try:
        await asyncio.shield(download.task)
    except Exception as error:
        return {"error": str(error)}
    finally:
        download.cancelled.set()
    return _SUCCESS


def _is_served(facts: PageFacts, name: str) -> bool:
    return name.removesuffix(":latest") in {each.removesuffix(":latest") for each in facts.models()}


async def _delete(request: Request) -> Response:
    """Delete the files of a downloaded model."""
    models: PulledModels = request.app.state.facts.pulled()
    try:
        wanted = await _read(request)
        note = await asyncio.to_thread(models.get, _named(wanted))
    except (ValueError, RecursionError) as error:
        return json_response({"error": str(error)}, 400)
    except PullFailed as error:
        return json_response({"error": str(error)}, 404)
    await asyncio.to_thread(models.remove, note)
    return Response()


def _named(wanted: _Wanted) -> str:
    """The name of the model. Raises ``ValueError`` without one."""
    if name := wanted.model or wanted.name:
        return name
    raise ValueError("model is required")


async def _read(request: Request) -> _Wanted:
    return msgspec.json.decode(await request.body(), type=_Wanted)
