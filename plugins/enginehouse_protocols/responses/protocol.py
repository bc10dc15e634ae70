"""The protocol of https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from enginehouse import InvalidRequest, parse_size
from enginehouse.errors import NotFound
from enginehouse.protocols import PageRequest
from enginehouse_kit.protocols import Envelope, Native, Protocol, ProtocolRequest, Translation, TypedAnswer
from enginehouse_protocols.counted_tokens import CountedTokens
from enginehouse_protocols.fields import read
from enginehouse_protocols.responses.answer import ResponseTranslation
from enginehouse_protocols.responses.engine_responses import LONGEST_ID, EngineResponses
from enginehouse_protocols.responses.native import ResponseEvents
from enginehouse_protocols.responses.request import Item, ResponsesBody, as_chat
from enginehouse_protocols.responses.stored import StoredResponses, not_kept

_PATH: Final = "/v1/responses"
_COUNT: Final = f"{_PATH}/input_tokens"
_USUAL, _MOST = 20, 100
_ORDERS: Final = ("asc", "desc")


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
    paths = (_PATH, _COUNT)
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
            return self._continued(request, body, body.previous_response_id)
        return self._translated(request, body, body.items)

    async def _continued(self, request: ProtocolRequest, body: ResponsesBody, before: str) -> Translation:
        earlier = await self._stored.conversation(before, request.caller)
        return self._translated(request, body, [*earlier, *body.items])

    def _translated(self, request: ProtocolRequest, body: ResponsesBody, items: Sequence[Item]) -> Translation:
        fields, custom = as_chat(body, items)
        if request.path == _COUNT:
            return CountedTokens(fields, {"object": "response.input_tokens"})
        keeps = self._most and body.store is not False
        keep = partial(self._stored.keep, asked=items, owner=request.caller) if keeps else None
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

    def typed_answer(self, path: str) -> TypedAnswer | None:
        return None if path == _COUNT else ResponseEvents()

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


def page_of(id: str, items: Sequence[msgspec.Raw], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the ``items`` of the response ``id``: ``query`` has ``limit``, ``order`` and ``after``.

    The latest come first unless ``order`` is ``asc``. Raises ``InvalidRequest``.
    """
    listed = [_listed(id, place, msgspec.json.decode(item)) for place, item in enumerate(items)]
    order = query.get("order", "desc")
    if order not in _ORDERS:
        raise InvalidRequest(f"'order' is 'asc' or 'desc', not '{order}'", param="order")
    if order == "desc":
        listed.reverse()
    begin = 0
    if (after := query.get("after")) is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise InvalidRequest(f"The response has no item '{after}'", param="after")
        begin = places[0] + 1
    end = begin + _limit(query.get("limit"))
    data = listed[begin:end]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": end < len(listed),
    }


def _limit(asked: str | None) -> int:
    if asked is None:
        return _USUAL
    if not asked.isdecimal() or not 1 <= int(asked[:4]) <= _MOST:
        raise InvalidRequest(f"'limit' is a number from 1 to {_MOST}, not '{asked}'", param="limit")
    return int(asked)


def _listed(id: str, place: int, item: dict[str, Any]) -> dict[str, Any]:
    """An item with an id, and a message with a list of parts, as OpenAI lists them."""
    kind = item.setdefault("type", "message")
    if not item.get("id"):
        item["id"] = f"{'msg' if kind == 'message' else 'item'}_{id.removeprefix('resp_')}_{place}"
    if kind == "message":
        item.setdefault("role", "user")
        item.setdefault("status", "completed")
        if isinstance(content := item.get("content"), str):
            of = "output_text" if item["role"] == "assistant" else "input_text"
            more: dict[str, Any] = {"annotations": []} if of == "output_text" else {}
            item["content"] = [{"type": of, "text": content, **more}]
    return item
