"""Messages with file descriptors over a unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from enginehouse.processes.take_over.messages import M, TakeOverMessage

T = TypeVar("T")

_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")
"""The process, the user and the group (unix(7))."""
_MOST_DESCRIPTORS = 64
_NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PIECE = 1 << 20


class ChannelClosed(Exception):
    """The other process has ended the conversation, or says what this one does not understand."""


class MessageChannel:
    """Sends and receives messages. ``connection`` belongs to the channel. One task may send while another receives."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection

    async def send(self, message: TakeOverMessage, descriptors: Sequence[int] = ()) -> None:
        """Send a message with copies of ``descriptors``. Raises ``ChannelClosed``."""
        data = msgspec.msgpack.encode(message)
        try:
            await self._send_length(len(data), descriptors)
            await asyncio.get_running_loop().sock_sendall(self._connection, data)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    async def receive(self, type: type[M]) -> tuple[M, list[int]]:
        """The next message, which must be of ``type``, and the new descriptors in it. Raises ``ChannelClosed``."""
        try:
            head, descriptors = await self._receive_head()
            (length,) = _LENGTH.unpack(head + await self._receive(_LENGTH.size - len(head)))
            data = await self._receive(length)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        try:
            return msgspec.msgpack.decode(data, type=type), descriptors
        except msgspec.DecodeError as error:
            for each in descriptors:
                os.close(each)
            raise ChannelClosed(f"the other gateway sent no {type.__name__}: {error}") from error

    @property
    def peer(self) -> int:
        """The process id of the other side; 0 where the system does not tell."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            return 0
        pid: int = _CREDENTIALS.unpack(self._connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[0]
        return pid

    def close(self) -> None:
        self._connection.close()

    async def _send_length(self, length: int, descriptors: Sequence[int]) -> None:
        """Send the head, and with it the descriptors: they belong to its first byte."""
        loop, head = asyncio.get_running_loop(), _LENGTH.pack(length)
        send = partial(socket.send_fds, self._connection, [head], descriptors)
        sent = await self._when_ready(send, loop.add_writer, loop.remove_writer)
        await loop.sock_sendall(self._connection, head[sent:])

    async def _receive_head(self) -> tuple[bytes, list[int]]:
        loop = asyncio.get_running_loop()
        receive = partial(socket.recv_fds, self._connection, _LENGTH.size, _MOST_DESCRIPTORS, _NOT_INHERITED)
        head, found, _, _ = await self._when_ready(receive, loop.add_reader, loop.remove_reader)
        if not head:
            raise ChannelClosed("the other gateway ended the conversation")
        for each in found:
            os.set_inheritable(each, False)
        return head, list(found)

    async def _when_ready(self, act: Callable[[], T], add: Callable[..., None], remove: Callable[..., object]) -> T:
        """Do what needs a connection that does not block. ``add`` and ``remove`` a watch of that."""
        while True:
            try:
                return act()
            except BlockingIOError:  # noqa: PERF203 - waits anyway
                ready = asyncio.Event()
                add(self._connection, ready.set)
                try:
                    await ready.wait()
                finally:
                    remove(self._connection)

    async def _receive(self, length: int) -> bytes:
        pieces: list[bytes] = []
        while length:
            piece = await asyncio.get_running_loop().sock_recv(self._connection, min(length, _PIECE))
            if not piece:
                raise ChannelClosed("the other gateway ended the conversation in mid-message")
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)
