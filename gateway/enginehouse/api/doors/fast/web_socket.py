"""A client's WebSocket: uvicorn's protocol, with two defects of refused handshakes corrected."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes over a client's connection when it asks for a WebSocket.

    uvicorn's own protocol never closes a connection whose handshake cannot be parsed. It also logs a failure whenever
    the application refuses a handshake with an HTTP response.
    """

    def data_received(self, data: bytes) -> None:
        """The first data is the complete handshake."""
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
