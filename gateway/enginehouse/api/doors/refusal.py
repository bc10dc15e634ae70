"""Answers a request, or the handshake of a WebSocket, with an error."""

from __future__ import annotations

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.web_socket import AsgiWebSocketDoor
from enginehouse.domain.errors import RequestError


async def refuse(scope: Scope, receive: Receive, send: Send, error: RequestError) -> None:
    """Answer the HTTP request or the WebSocket of ``scope``, of which nothing was received yet."""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        await refuse_web_socket(AsgiWebSocketDoor(scope, receive, send), error)
    else:
        await Response(_body(error), error.status, media_type="application/json")(scope, receive, send)


async def refuse_web_socket(door: AsgiWebSocketDoor, error: RequestError, *lines: tuple[bytes, bytes]) -> None:
    """Answer a handshake; ``lines`` are further headers."""
    headers = [(b"content-type", b"application/json"), *lines]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    await door.refuse(error.status, headers, _body(error))


def _body(error: RequestError) -> bytes:
    return msgspec.json.encode(error.envelope())
