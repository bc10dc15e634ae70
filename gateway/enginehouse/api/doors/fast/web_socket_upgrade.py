"""A client's WebSocket: uvicorn's protocol, with three defects corrected."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes over a client's connection when it asks for a WebSocket.

    uvicorn's own protocol never closes a connection whose handshake cannot be parsed. It also logs a failure whenever
    the application refuses a handshake with an HTTP response. A client that is just closing its WebSocket keeps the
    whole server from shutting down, as a second close frame is an error.
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

    def shutdown(self) -> None:
        """The server stops."""
        if self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN:
            self.stop_keepalive()
            self.transport.close()
        else:
            super().shutdown()
