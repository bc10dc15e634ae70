"""Serves a client's WebSocket: by an engine, or by an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final

import msgspec

from enginehouse import Headers, RequestError
from enginehouse.web_sockets import Handshake, WebSocketToEngine
from enginehouse_web_sockets.client_socket import ClientWebSocket, Farewell
from enginehouse_web_sockets.engine_socket import RelayedSocket

_OFFERED_KEY: Final = "openai-insecure-api-key."


def open_web_socket(handshake: Handshake) -> None:
    """Check the handshake of a client, and connect it with an engine or with the application."""
    client = ClientWebSocket(handshake.transport, handshake.largest, handshake.share, handshake.connections)
    if handshake.engine is None:
        serve = partial(_serve_application, client, handshake)
    else:
        serve = partial(_serve_engine, client, handshake, handshake.engine)
    client.open(handshake.url, handshake.headers, handshake.behind, serve, handshake.tasks)


async def _serve_engine(client: ClientWebSocket, handshake: Handshake, begin: Callable[[], WebSocketToEngine]) -> None:
    """Connect ``client`` with an engine. A refused handshake gets the error's envelope."""
    headers = _with_offered_key(handshake.headers, client)
    request = begin()
    try:
        await request.serve(headers, RelayedSocket(client, request, handshake.largest, handshake.memory))
    except RequestError as error:
        lines = [(b"content-type", b"application/json"), (b"x-request-id", request.request_id)]
        if error.retry_after is not None:
            lines.append((b"retry-after", b"%d" % error.retry_after))
        await client.refuse(error.status, lines, msgspec.json.encode(error.envelope()))


def _with_offered_key(headers: Headers, client: ClientWebSocket) -> Headers:
    """``headers`` with the key that the client offers as a subprotocol, which no engine gets.

    OpenAI's SDK does so in browsers, whose WebSockets have no headers.
    """
    keys = [each for each in client.subprotocols if each.startswith(_OFFERED_KEY)]
    if not keys:
        return headers
    client.subprotocols = [each for each in client.subprotocols if each not in keys]
    return [*headers, (b"authorization", b"Bearer " + keys[0].removeprefix(_OFFERED_KEY).encode("latin-1"))]


async def _serve_application(client: ClientWebSocket, handshake: Handshake) -> None:
    """Let a route of the application talk with ``client`` (ASGI 3.0, WebSocket 2.3)."""
    served = _Served(client)
    more = {"subprotocols": client.subprotocols, "extensions": {"websocket.http.response": {}}}
    await handshake.application({**handshake.scope, **more}, served.receive, served.send)


class _Served:
    """ASGI's view of a client's WebSocket."""

    def __init__(self, client: ClientWebSocket) -> None:
        self._client = client
        self._connected = False
        self._refusal: tuple[int, Headers] = (403, [])

    async def receive(self) -> dict[str, Any]:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        message = await self._client.receive()
        if isinstance(message, Farewell):
            return {"type": "websocket.disconnect", "code": message.code, "reason": message.reason}
        return {"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        type = message["type"]
        if type == "websocket.accept":
            await self._client.accept(message.get("subprotocol"), list(message.get("headers", ())))
        elif type == "websocket.send":
            text = message.get("text")
            await self._client.send(message["bytes"] if text is None else text)
        elif type == "websocket.close":
            await self._client.close(Farewell(message.get("code", 1000), message.get("reason") or ""))
        elif type == "websocket.http.response.start":
            self._refusal = message["status"], list(message.get("headers", ()))
        elif type == "websocket.http.response.body":
            await self._client.refuse(*self._refusal, message.get("body", b""))
