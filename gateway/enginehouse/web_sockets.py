"""WebSockets: the connection of a client that asks for one, and its request to an engine."""

from __future__ import annotations

from enginehouse.relay.heads import FOR_THE_GATEWAY
from enginehouse.relay.web_socket_server import AskedEngine, Handshake, WebSocketCarrier, WebSocketToEngine

__all__ = [
    "FOR_THE_GATEWAY",
    "AskedEngine",
    "Handshake",
    "WebSocketCarrier",
    "WebSocketToEngine",
]
