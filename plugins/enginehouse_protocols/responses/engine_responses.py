"""Which backends have the responses that engines store themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from enginehouse import InvalidRequest, RequestError
from enginehouse.continuers import read_events
from enginehouse.drivers import EngineClient, EngineResponse
from enginehouse.errors import NotFound, UpstreamError
from enginehouse_protocols.responses.stored import StoredResponses

_MOST: Final = 4 << 20
"""Bytes: about 40,000 responses, each with its id and the name of its backend."""
LONGEST_ID: Final = 512


class _Named(msgspec.Struct):
    id: Any = None
    store: Any = None
    backend: str = ""


class _Event(msgspec.Struct):
    response: _Named | None = None


_named = msgspec.json.Decoder(_Named).decode
_event = msgspec.json.Decoder(_Event).decode


class EngineResponses:
    """The backends of the responses that engines have given last, by their ids.

    A response belongs to the ``owner`` that asked for it: for all others it is not there.
    """

    def __init__(self) -> None:
        self._stored = StoredResponses(_MOST, "engine_responses.sqlite")

    def open(self, folder: Path) -> None:
        """As of ``StoredResponses``."""
        self._stored.open(folder)

    def watch(self, owner: str) -> Callable[[str, bytes], bool]:
        """What notes the backend of a response to ``owner``, as ``Native.watch``."""

        def see(backend: str, piece: bytes) -> bool:
            named = _response_in(piece)
            if named is None:
                return False
            if isinstance(named.id, str) and 0 < len(named.id) <= LONGEST_ID and named.store is not False:
                self._stored.keep({"id": named.id, "backend": backend, "output": []}, [], owner)
            return True

        return see

    async def backend(self, id: str, owner: str) -> str:
        """The backend that has a response. Raises ``NotFound`` if that is not known."""
        return _named(await self._stored.response(id, owner)).backend

    async def find(self, id: str, backends: Sequence[str], engine: Callable[[str], EngineClient]) -> str:
        """The one of ``backends`` whose engine says that it has a response; empty if none does."""
        answers = await asyncio.gather(*(_has(engine, each, id) for each in backends))
        return next((backend for backend, has in zip(backends, answers, strict=True) if has), "")

    async def ask(
        self,
        id: str,
        owner: str,
        method: str,
        engine: Callable[[str], EngineClient],
        *,
        what: str = "",
        query: Mapping[str, str],
    ) -> bytes:
        """What the engine that has a response answers about it, or about its part ``what``.

        Raises ``NotFound``, or the engine's error.
        """
        client = engine(await self.backend(id, owner))
        path = f"{_page(id)}{what and f'/{what}'}"
        answer = await client.request(method, f"{path}?{urlencode(query)}" if query else path)
        if answer.status >= 300:
            raise _error(answer)
        if method == "DELETE":
            await self._stored.delete(id, owner)
        return answer.body


def _page(id: str) -> str:
    return f"/v1/responses/{quote(id, safe='')}"


async def _has(engine: Callable[[str], EngineClient], backend: str, id: str) -> bool:
    try:
        return (await engine(backend).request("GET", _page(id))).status == 200
    except RequestError:
        return False


def _response_in(piece: bytes) -> _Named | None:
    """The response of a whole answer, or of the first event that has it; ``None`` if there is none yet."""
    try:
        if piece.lstrip()[:1] == b"{":
            return _named(piece)
        events = (_event(event.data) for event in read_events(piece) if event.data)
        return next((event.response for event in events if event.response is not None), None)
    except (ValueError, RecursionError):
        return None


def _error(answer: EngineResponse) -> RequestError:
    try:
        said = msgspec.json.decode(answer.body)
        error = said.get("error", said)
        message = str(error.get("message") or error.get("detail")) if isinstance(error, dict) else str(error)
    except (ValueError, RecursionError, AttributeError):
        message = f"The engine answered {answer.status}"
    if answer.status == 404:
        return NotFound(message)
    if not 400 <= answer.status < 500:
        return UpstreamError(message)
    error = InvalidRequest(message)
    error.status = answer.status
    return error
