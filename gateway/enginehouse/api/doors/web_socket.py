"""The client's side of a WebSocket in ASGI."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from starlette.types import Message, Receive, Scope, Send

from enginehouse.api.doors.asgi import without_date
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Farewell

_NO_CODE, _BROKEN = 1005, 1006


class AsgiWebSocketDoor:
    """A ``WebSocketDoor`` for an ASGI scope. Its ``websocket.connect`` must have been received."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.subprotocols: Sequence[str] = scope["subprotocols"]
        self._may_refuse = "websocket.http.response" in (scope.get("extensions") or {})
        self._receive = receive
        self._send = send

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        await self._put({"type": "websocket.accept", "subprotocol": subprotocol, "headers": without_date(headers)})

    async def refuse(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the handshake with an HTTP response; 403 if the server lacks ``websocket.http.response``."""
        if self._may_refuse:
            await self._put({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await self._put({"type": "websocket.http.response.body", "body": body})
        else:
            await self._put({"type": "websocket.close"})

    async def receive(self) -> str | bytes | Farewell:
        """The client's next message, or the end of the WebSocket."""
        message = await self._receive()
        if message["type"] == "websocket.receive":
            text: str | None = message.get("text")
            return message["bytes"] if text is None else text
        code = message.get("code", _NO_CODE)
        # uvicorn reports a broken connection with 1005 too, but then without a reason.
        return Farewell(_BROKEN if code == _NO_CODE and "reason" not in message else code, message.get("reason") or "")

    async def send(self, message: str | bytes) -> None:
        """Send a message, once the client has read most of the earlier ones."""
        kind = "text" if isinstance(message, str) else "bytes"
        await self._put({"type": "websocket.send", kind: message})

    async def close(self, farewell: Farewell) -> None:
        await self._put({"type": "websocket.close", "code": farewell.code, "reason": farewell.reason})

    async def _put(self, message: Message) -> None:
        # A server raises OSError after the client has disconnected, RuntimeError after closing the connection itself.
        with contextlib.suppress(OSError, RuntimeError):
            await self._send(message)
