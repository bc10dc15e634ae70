"""``POST /api/pull`` and ``DELETE /api/delete``: clients of Ollama download models of the gateway, and delete them.

https://github.com/ollama/ollama/blob/main/docs/api.md has the forms. A model that the gateway serves is there already,
wherever its engine has it from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from enginehouse import PageFacts, PulledModels, PullFailed

_SUCCESS = {"status": "success"}
_LINES = "application/x-ndjson"


class _Wanted(msgspec.Struct):
    """A model, in either of two fields."""

    model: str = ""
    name: str = ""
    stream: bool = True


async def _pull(request: Request) -> Response:
    """Download a model; its progress as lines of JSON, or one answer at the end with ``"stream": false``."""
    facts: PageFacts = request.app.state.facts
    models = facts.pulled()
    try:
        wanted = await _read(request)
        if not _is_served(facts, name := wanted.model or wanted.name):
            models.check(name)
    except (ValueError, RecursionError, PullFailed) as error:
        return _answer({"error": str(error)}, 400)
    lines = _lines(facts, models, name)
    if wanted.stream:
        return StreamingResponse((msgspec.json.encode(line) + b"\n" async for line in lines), 200, None, _LINES)
    last: dict[str, Any] = {}
    async for line in lines:
        last = line
    return _answer(last, 500 if "error" in last else 200)


async def _lines(facts: PageFacts, models: PulledModels, name: str) -> AsyncIterator[dict[str, Any]]:
    """The states of a download. It ends when nobody reads on, or the gateway stops; what is there then is kept."""
    yield {"status": "pulling manifest"}
    if _is_served(facts, name):
        yield _SUCCESS
        return
    loop, given_up = asyncio.get_running_loop(), Event()
    states: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    why = f"The download of '{name}' was given up: pull again, and it goes on there"

    def progress(done: int, total: int | None) -> None:
        if given_up.is_set():
            raise PullFailed(why)
        size = {} if total is None else {"total": total}
        state = {"status": f"pulling {name}", "digest": name, "completed": done} | size
        loop.call_soon_threadsafe(states.put_nowait, state)

    def ended(pulling: asyncio.Future[Path]) -> None:
        if not pulling.cancelled():
            problem = pulling.exception()
            states.put_nowait(_SUCCESS if problem is None else {"error": str(problem)})

    async def stop() -> None:
        await facts.closing.wait()  # the thread only looks when bytes arrive
        states.put_nowait({"error": why})

    stopping = asyncio.ensure_future(stop())
    asyncio.ensure_future(asyncio.to_thread(models.pull, name, progress)).add_done_callback(ended)
    try:
        state = await states.get()
        while "completed" in state:
            yield state
            state = await states.get()
        yield state
    finally:
        given_up.set()
        stopping.cancel()


def _is_served(facts: PageFacts, name: str) -> bool:
    return name.removesuffix(":latest") in {
        each["model"].removesuffix(":latest") for each in facts.snapshot()["replicas"]
    }


async def _delete(request: Request) -> Response:
    """Delete the files of a downloaded model."""
    models: PulledModels = request.app.state.facts.pulled()
    try:
        wanted = await _read(request)
        note = await asyncio.to_thread(models.get, wanted.model or wanted.name)
    except (ValueError, RecursionError) as error:
        return _answer({"error": str(error)}, 400)
    except PullFailed as error:
        return _answer({"error": str(error)}, 404)
    await asyncio.to_thread(models.remove, note)
    return Response()


async def _read(request: Request) -> _Wanted:
    return msgspec.json.decode(await request.body(), type=_Wanted)


def _answer(content: dict[str, Any], status: int) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


PULL_ROUTES = [Route("/api/pull", _pull, methods=["POST"]), Route("/api/delete", _delete, methods=["DELETE"])]
