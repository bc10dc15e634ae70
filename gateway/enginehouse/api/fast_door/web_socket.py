"""A client's WebSocket: uvicorn's protocol for that, with the ends of refused handshakes mended."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """What a client's connection becomes when it asks for a WebSocket.

    uvicorn's own leaves a connection open for ever whose handshake cannot be parsed, and logs every answer of the
    application that is no WebSocket as a failure.
    """

    def data_received(self, data: bytes) -> None:
        """The client sends something; the first time, that is its whole handshake."""
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    async def send(self, message: Any) -> None:
        """The application sends something."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
