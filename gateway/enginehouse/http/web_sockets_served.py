"""Serves a client's WebSocket: by an engine, or by an ASGI application."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Scope

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import Admission
from enginehouse.http.relayed_paths import check_path
from enginehouse.http.web_socket import ClientWebSocket
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.jobs.engine_job import EngineCall
from enginehouse.relay.response_writer import Farewell

_OFFERED_KEY: Final = "openai-insecure-api-key."


async def serve_engine(
    client: ClientWebSocket, path: str, headers: Headers, call: EngineCall, admission: Admission
) -> None:
    """Connect ``client`` with the engine of ``call``. A refused handshake gets the error's envelope."""

    def enter() -> AdmittedCaller | None:
        caller = admission.admit_web_socket(_with_offered_key(headers, client))
        check_path(call.target)
        return caller

    socket = admission.relay.web_socket(path, headers, call, largest=admission.max_body)
    try:
        await socket.run(client, enter)
    except RequestError as error:
        lines = [(b"content-type", b"application/json"), (b"x-request-id", socket.request_id)]
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


async def serve_application(client: ClientWebSocket, scope: Scope, application: ASGIApp) -> None:
    """Let a route of ``application`` talk with ``client`` (ASGI 3.0, WebSocket 2.3)."""
    served = _Served(client)
    scope = {**scope, "subprotocols": client.subprotocols, "extensions": {"websocket.http.response": {}}}
    await application(scope, served.receive, served.send)


class _Served:
    """ASGI's view of a client's WebSocket."""

    def __init__(self, client: ClientWebSocket) -> None:
        self._client = client
        self._connected = False
        self._refusal: tuple[int, Headers] = (403, [])

    async def receive(self) -> Message:
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
