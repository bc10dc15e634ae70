"""The fast door: uvicorn's HTTP protocol, with the inference endpoints kept to itself.

A request for one of them never becomes an ASGI scope or a task: the parser's callbacks drive its exchange. Every other
request goes to the application unchanged.

This package uses attributes of uvicorn's protocols that uvicorn does not document, so ``pyproject.toml`` caps uvicorn's
minor version. ``.ci/newest-uvicorn`` tests the newest one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.fast.connection import FastDoor
from enginehouse.api.doors.fast.idle_sweep import IdleSweep
from enginehouse.api.doors.fast.resumed import Resumed
from enginehouse.api.doors.fast.turns import PassOn

__all__ = ["FastDoor", "PassOn", "Resumed", "fast_door", "web_socket_protocol"]


def fast_door(admission: Admission, *, cors: bool) -> partial[FastDoor]:
    """Make the protocol class for uvicorn's ``http``. With ``cors``, the application answers browsers."""
    return partial(FastDoor, admission=admission, cors=cors, idle_sweep=IdleSweep())


def web_socket_protocol(**connection: Any) -> asyncio.Protocol:
    """Make a protocol for uvicorn's ``ws``. The library is imported with the first one."""
    from enginehouse.api.doors.fast.web_socket_upgrade import WebSocketProtocol

    return WebSocketProtocol(**connection)
