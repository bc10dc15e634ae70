"""Carries the messages of an open WebSocket both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from enginehouse.domain.errors import LoadFailed, RequestError, ShuttingDown
from enginehouse.relay.attempts.attempt import NEVER
from enginehouse.relay.response_writer import Farewell, WebSocketPeer

_NORMAL, _GOING_AWAY, _NO_CODE, _BROKEN, _POLICY, _BAD_GATEWAY = 1000, 1001, 1005, 1006, 1008, 1014
_FAREWELL_S = 5.0
_LONGEST_REASON = 123


class WebSocketPipe:
    """Carries messages between a client and an engine until one side ends, then ends the other with the same code.

    It reads the next message of one side when the other side has taken the last. The engine has ``stall`` seconds to
    take one; 0 means no limit. ``deadline``: when that time ends, on the clock ``now``.
    """

    def __init__(self, client: WebSocketPeer, engine: ClientConnection, stall: float, now: Callable[[], float]) -> None:
        self._client = client
        self._engine = engine
        self._stall = stall
        self._now = now
        self.deadline = NEVER

    async def carry(self, stop: asyncio.Future[RequestError]) -> None:
        """Carry messages until a side ends, or until ``stop`` has the error to end both with."""
        up, down = asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())
        ends: set[asyncio.Future[Any]] = {up, down, stop}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        if stop.done():
            error = stop.result()
            await self._close_client(
                _GOING_AWAY if isinstance(error, (LoadFailed, ShuttingDown)) else _POLICY, error.message
            )
            await self._engine.close(_GOING_AWAY)
        elif up.cancelled():
            await self._close_client(*_as_sent(down.result(), _BAD_GATEWAY))
        else:
            await self._engine.close(*_as_sent(up.result(), _GOING_AWAY))

    async def _up(self) -> Farewell:
        """Carry the client's messages to the engine."""
        while not isinstance(message := await self._client.receive(), Farewell):
            self.deadline = self._now() + self._stall if self._stall else NEVER
            with contextlib.suppress(
                ConnectionClosed
            ):  # _down ends then, after it has passed on the engine's last messages
                await self._engine.send(message)
            self.deadline = NEVER
        return message

    async def _down(self) -> Farewell:
        """Carry the engine's messages to the client."""
        try:
            while True:
                await self._client.send(await self._engine.recv())
        except ConnectionClosed as closed:
            return Farewell(closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else Farewell(_BROKEN, str(closed))

    async def _close_client(self, code: int, reason: str) -> None:
        short = reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
        with contextlib.suppress(asyncio.TimeoutError):  # the client reads nothing
            await asyncio.wait_for(self._client.close(Farewell(code, short)), _FAREWELL_S)


def _as_sent(farewell: Farewell, if_broken: int) -> Farewell:
    """One side's farewell for the other: 1005 and 1006 must not be sent (RFC 6455, 7.4.1)."""
    code = {_NO_CODE: _NORMAL, _BROKEN: if_broken}.get(farewell.code, farewell.code)
    return Farewell(code, farewell.reason)
