"""The protocol of https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from enginehouse import InvalidRequest, Protocol, parse_size
from enginehouse.errors import NotFound
from enginehouse.protocols import Envelope, Native, PageRequest, ProtocolRequest, Translation, TypedAnswer
from enginehouse_protocols.fields import read
from enginehouse_protocols.responses.engine_responses import LONGEST_ID, EngineResponses
from enginehouse_protocols.responses.input_items import page_of
from enginehouse_protocols.responses.native import ResponseEvents
from enginehouse_protocols.responses.request import Item, ResponsesBody, as_chat
from enginehouse_protocols.responses.stored import StoredResponses, not_kept
from enginehouse_protocols.responses.stream import ResponseTranslation

_PATH: Final = "/v1/responses"


class ResponsesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stored``: the size of all responses that are kept for ``previous_response_id``, or ``"0"`` to keep none."""

    stored: str = "0"

    def __post_init__(self) -> None:
        parse_size(self.stored)


class _Asked(msgspec.Struct):
    """What concerns the engine that stores responses itself."""

    previous_response_id: Any = None
    store: Any = None


_asked = msgspec.json.Decoder(_Asked).decode
_KEEP_NONE: Final = ResponsesConfig()


class Responses(Protocol):
    """OpenAI's Responses. A request brings its whole conversation, or continues a response that is kept.

    An engine that speaks the protocol itself keeps its own: what follows them goes to the same engine.
    """

    Config = ResponsesConfig
    name: ClassVar[str] = "responses"
    paths = (_PATH,)
    pages = (
        ("GET", f"{_PATH}/{{id}}"),
        ("DELETE", f"{_PATH}/{{id}}"),
        ("GET", f"{_PATH}/{{id}}/input_items"),
        ("POST", f"{_PATH}/{{id}}/cancel"),
    )

    def __init__(self, config: ResponsesConfig = _KEEP_NONE) -> None:
        self._most = parse_size(config.stored)
        self._stored = StoredResponses(self._most)
        self._at_engines = EngineResponses()

    def open(self, folder: Path) -> None:
        self._stored.open(folder)
        self._at_engines.open(folder)

    def translate(self, request: ProtocolRequest) -> Translation | Awaitable[Translation]:
        body = read(request.body, ResponsesBody)
        if body.previous_response_id is not None:
            return self._continued(body, body.previous_response_id, request.caller)
        return self._translated(body, body.items, request.caller)

    async def _continued(self, body: ResponsesBody, before: str, caller: str) -> Translation:
        return self._translated(body, [*await self._stored.conversation(before, caller), *body.items], caller)

    def _translated(self, body: ResponsesBody, items: Sequence[Item], caller: str) -> Translation:
        keeps = self._most and body.store is not False
        keep = partial(self._stored.keep, asked=items, owner=caller) if keeps else None
        fields, custom = as_chat(body, items)
        return ResponseTranslation(body, fields, keep, custom)

    def native(self, request: ProtocolRequest) -> Native | Awaitable[Native]:
        try:
            asked = _asked(request.body)
        except (ValueError, RecursionError):  # the gateway refuses it, as any other body
            return Native()
        watch = None if asked.store is False else self._at_engines.watch(request.caller)
        before = asked.previous_response_id
        return self._pinned(before, request, watch) if isinstance(before, str) else Native(watch=watch)

    async def _pinned(
        self, before: str, request: ProtocolRequest, watch: Callable[[str, bytes], bool] | None
    ) -> Native:
        try:
            backend = await self._at_engines.backend(before, request.caller)
        except NotFound:
            if request.caller:  # it may be another one's
                raise not_kept(before) from None
            return Native(await self._found(before, request), watch)
        if backend not in request.backends:
            raise InvalidRequest(
                f"Backend '{backend}' stores the response '{before}', and does not serve this model",
                param="previous_response_id",
            )
        return Native(backend, watch)

    async def _found(self, before: str, request: ProtocolRequest) -> str:
        """The backend of a response that another gateway may have asked for."""
        if len(request.backends) < 2 or len(before) > LONGEST_ID:
            return ""
        return await self._at_engines.find(before, request.backends, request.engine)

    def typed_answer(self, path: str) -> TypedAnswer:
        return ResponseEvents()

    def error(self, status: int, envelope: Envelope) -> bytes:
        error = envelope["error"]
        if error.get("param") == "messages":  # the chat's name of the conversation
            error = {**error, "param": "input"}
        return msgspec.json.encode({"error": error})

    async def answer_page(self, request: PageRequest) -> bytes:
        id, _, what = request.path.removeprefix(f"{_PATH}/").partition("/")
        caller, stored = request.caller, self._stored
        if request.method == "GET" and request.query.get("stream") == "true":
            raise InvalidRequest("The gateway streams no response again: leave 'stream' out", param="stream")
        if not await stored.has(id, caller):
            return await self._at_engines.ask(
                id, caller, request.method, request.engine, what=what, query=request.query
            )
        if what == "input_items":
            return msgspec.json.encode(page_of(id, await stored.asked(id, caller), request.query))
        if what == "cancel":
            await stored.response(id, caller)
            raise InvalidRequest(f"The response '{id}' has ended: only one in the background can be cancelled")
        if request.method == "DELETE":
            await stored.delete(id, caller)
            return msgspec.json.encode({"id": id, "object": "response", "deleted": True})
        return await stored.response(id, caller)
