"""The fast door: uvicorn's HTTP protocol, with the hot endpoints kept to itself.

A request for one of them never becomes an ASGI scope or a task: its exchange is driven by the parser's callbacks. Every
other request goes to the application unchanged.
"""

from __future__ import annotations

from enginehouse.api.entrance import Entrance
from enginehouse.api.fast_door.connection import FastDoor
from enginehouse.api.fast_door.idlers import Idlers
from enginehouse.api.fast_door.web_socket import WebSocketProtocol

__all__ = ["FastDoor", "WebSocketProtocol", "fast_door"]


def fast_door(entrance: Entrance, *, cors: bool) -> type[FastDoor]:
    """The protocol class to give to uvicorn as its ``http``; ``cors`` leaves browsers to the application."""
    return type("FastDoor", (FastDoor,), {"entrance": entrance, "_cors": cors, "_idlers": Idlers()})
