"""WebSockets (RFC 6455) between clients and engines, or clients and the gateway's own pages.

::

    server         takes over the connection of a client that asks for a WebSocket
    serving        connects it with an engine, or with the application
    client_socket  the client's side
    engine_socket  the engine's side, and the messages between the two
"""

from __future__ import annotations

from enginehouse import Register, WebSocketServer, hookimpl
from enginehouse_web_sockets.server import Server


@hookimpl
def register_web_socket_servers(register: Register[WebSocketServer]) -> None:
    """Register the server, which every gateway uses."""
    register("web_sockets", Server)
