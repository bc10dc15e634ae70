"""The fast door: uvicorn's HTTP protocol, with the inference endpoints kept to itself.

A request for one of them never becomes an ASGI scope or a task: the parser's callbacks drive its exchange. Every other
request goes to the application unchanged.

``connection`` is a client's connection, with ``turns`` for its requests and ``inbound`` for one of them.
``request_lines`` checks what the parser lets pass, ``head_cache`` knows heads that come again, ``time_limits`` ends
what takes too long, and ``web_socket_upgrade`` mends uvicorn's WebSockets.

This package uses attributes of uvicorn's protocols that uvicorn does not document, so ``pyproject.toml`` caps uvicorn's
minor version. ``.ci/newest-uvicorn`` tests the newest one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.fast.connection import FastDoor
from enginehouse.api.doors.fast.time_limits import IdleSweep
from enginehouse.api.doors.fast.turns import PassOn

__all__ = ["FastDoor", "PassOn", "Resumed", "fast_door", "web_socket_protocol"]


def fast_door(admission: Admission, *, cors: bool) -> partial[FastDoor]:
    """Make the protocol class for uvicorn's ``http``. With ``cors``, the application answers browsers."""
    return partial(FastDoor, admission=admission, cors=cors, idle_sweep=IdleSweep())


def web_socket_protocol(**connection: Any) -> asyncio.Protocol:
    """Make a protocol for uvicorn's ``ws``. The library is imported with the first one."""
    from enginehouse.api.doors.fast.web_socket_upgrade import WebSocketProtocol

    return WebSocketProtocol(**connection)


class Resumed(asyncio.Protocol):
    """Gives a connection from another gateway to a new protocol, together with what was ``received`` on it before."""

    def __init__(self, make: Callable[[], asyncio.Protocol], received: bytes) -> None:
        self._make = make
        self._received = received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        cast(asyncio.Transport, transport).set_protocol(protocol)  # uvloop's transports inherit from nothing
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(self._received)
