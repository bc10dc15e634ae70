"""A client's WebSocket to an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginehouse import Headers
from enginehouse.errors import Overloaded
from enginehouse.middleware import EngineMemory, EngineShare
from enginehouse.web_sockets import AskedEngine, WebSocketCarrier, WebSocketToEngine
from enginehouse_web_sockets.client_socket import ClientWebSocket

if TYPE_CHECKING:  # the library takes 15 ms of each start, and most gateways have no WebSocket
    from enginehouse_web_sockets.engine_socket import HandshakeAnswer


class RelayedSocket(WebSocketCarrier):
    """Opens the engine's side of ``client``, which is open only then, and passes messages until one side ends.

    ``largest``: the size limit in bytes of a message from the engine.
    """

    def __init__(self, client: ClientWebSocket, request: WebSocketToEngine, largest: int, memory: EngineMemory) -> None:
        self._client = client
        self._request = request
        self._largest = largest
        self._memory = memory
        self._answer: HandshakeAnswer | None = None

    async def open(self, engine: AskedEngine) -> int:
        from enginehouse_web_sockets.engine_socket import open_web_socket

        self._answer = answer = await open_web_socket(engine, self._client.subprotocols, self._largest)
        return answer.status

    async def left(self) -> None:
        await self._client.receive()

    async def carry(self, headers: Headers) -> None:
        from enginehouse_web_sockets.engine_socket import WebSocketPipe

        answer = self._answer
        assert answer is not None
        headers = [*answer.headers, *headers]
        if answer.socket is None:
            await self._refuse(answer, headers)
            return
        await self._client.accept(answer.socket.subprotocol, headers)
        await WebSocketPipe(self._client, answer.socket, self._request).carry()

    async def _refuse(self, answer: HandshakeAnswer, headers: Headers) -> None:
        """Pass on what the engine answered instead of opening one."""
        share = EngineShare(self._memory, "answer", len(answer.body))
        if why := share.take(len(answer.body)):
            raise Overloaded(f"The engine refused the WebSocket, and its answer was dropped: {why}")
        try:
            await self._client.refuse(answer.status, headers, answer.body)
        finally:
            share.give_back()

    def abort(self) -> None:
        if self._answer is not None and self._answer.socket is not None:
            self._answer.socket.transport.abort()
