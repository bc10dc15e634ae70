"""A server that stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from enginehouse.cli.accepting import AcceptingServer


async def test_a_stop_that_fails_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def nothing(*_: Any) -> None: ...

    async def close() -> None:
        closed.append(True)

    async def stop() -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(uvicorn.Server, "shutdown", nothing)
    server: Any = object.__new__(AcceptingServer)
    server.config, server.force_exit, server.successor = SimpleNamespace(), False, SimpleNamespace(close=close)
    with pytest.raises(OSError, match="the disk is full"):
        await server.end(1.0, stop)
    assert closed
