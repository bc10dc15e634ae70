"""Takes over the connections of clients that ask for a WebSocket."""

from __future__ import annotations

from enginehouse import WebSocketServer
from enginehouse.web_sockets import Handshake


class Server(WebSocketServer):
    """Connects clients with engines, or lets the routes of an ASGI application talk with them."""

    def open(self, handshake: Handshake) -> None:
        # the library takes 25 ms of each start, and most gateways have no WebSocket
        from enginehouse_web_sockets.serving import open_web_socket

        open_web_socket(handshake)
