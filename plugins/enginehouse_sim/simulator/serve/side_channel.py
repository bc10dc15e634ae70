"""Side channels: one engine computes a prompt, and another one decodes. Each message is a JSON line."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse_sim.simulator.kv.disaggregation import KvAddress, Origin, RemoteBlockRegistry, RemoteBlocks, origin_in
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine asks for the blocks of a request."""

    request_id: str


class Offer(msgspec.Struct, frozen=True, tag=True):
    """The prefilling engine keeps the blocks, at least while the connection is open."""

    blocks: RemoteBlocks


class Gone(msgspec.Struct, frozen=True, tag=True):
    """The prefilling engine does not keep them, or no longer does."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine has loaded the blocks."""


Message = Fetch | Offer | Gone | Done


def encode(message: Message) -> bytes:
    """The line of a message, as UTF-8 JSON."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises ``msgspec.DecodeError`` for any other line, such as one cut short."""
    message: Message = msgspec.json.decode(line, type=Message)
    return message


_TIMEOUT = 5.0
_LINE_LIMIT = 64 * 2**20  # one hash for each block of the longest prompt
_log = logging.getLogger(__name__)


class SideChannel:
    """Listens on ``listener`` for engines that fetch, and fetches for the requests of ``engine``.

    A connection stays open while its blocks are loaded. If it breaks before, the engine that kept them is gone: loads
    from there fail, and their prompts are computed here.
    """

    def __init__(self, engine: BatchingEngine, address: KvAddress, listener: socket.socket) -> None:
        self._engine = engine
        self._address = address
        self._registry: RemoteBlockRegistry = address.registry
        self._registry.on_release = self._on_release
        self._listener = listener
        self._released: dict[Origin, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer other engines."""
        self._server = await asyncio.start_server(self._answer, sock=self._listener)

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def fetch(self, params: Mapping[str, Any]) -> None:
        """Ask the engine in a client's ``kv_transfer_params`` for the blocks that it keeps for the request.

        If that engine does not answer, the request computes its prompt.
        """
        origin = origin_in(params, "")
        if origin is None or self._registry.knows(origin):
            return
        try:
            opened = asyncio.open_connection(params["remote_host"], params["remote_port"], limit=_LINE_LIMIT)
            reader, writer = await asyncio.wait_for(opened, _TIMEOUT)
        except (KeyError, TypeError, OSError, asyncio.TimeoutError) as error:
            _log.warning("engine %s cannot be asked for blocks: %r", origin.engine_id, error)
            return
        offer = await self._ask(reader, writer, Fetch(origin.request_id))
        if not isinstance(offer, Offer) or offer.blocks.engine_id != origin.engine_id or self._registry.knows(origin):
            writer.close()
            return
        self._registry.learn(offer.blocks)
        self._released[origin] = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._hold(origin, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Message
    ) -> Message | None:
        if writer.is_closing():
            return None
        try:
            writer.write(encode(question))
            return decode(await asyncio.wait_for(reader.readline(), _TIMEOUT))
        except (OSError, ValueError, asyncio.TimeoutError, msgspec.DecodeError):
            return None

    async def _hold(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep the connection until the blocks are loaded or no longer needed, or the other engine is gone."""
        loop, released = asyncio.get_running_loop(), self._released[origin]
        ends: Sequence[asyncio.Task[Any]] = (loop.create_task(released.wait()), loop.create_task(_closed(reader)))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not released.is_set():
                self._registry.withdraw(origin)
                self._engine.fail_loads(origin)
            elif not writer.is_closing():
                writer.write(encode(Done()))
        finally:
            for end in ends:
                end.cancel()
            del self._released[origin]
            writer.close()

    def _on_release(self, origin: Origin) -> None:
        self._released[origin].set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._offer(reader, writer)
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # the other engine is gone: it may come back for the blocks until they expire
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _offer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = decode(await reader.readline())
        if not isinstance(question, Fetch):
            return
        origin = Origin(self._address.engine_id, question.request_id)
        blocks = self._registry.find(origin)
        if blocks is None:
            writer.write(encode(Gone()))
            return
        writer.write(encode(Offer(blocks)))
        if isinstance(decode(await reader.readline()), Done):
            self._registry.release(origin)


async def _closed(reader: asyncio.StreamReader) -> None:
    """Return when the other end closed the connection, or it broke."""
    try:
        await reader.read()
    except OSError:
        return
