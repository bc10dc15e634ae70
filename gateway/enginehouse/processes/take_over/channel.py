"""Where a gateway is reached, a socket in its state folder, and messages with file descriptors over it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from enginehouse.processes.take_over.messages import M, TakeOverMessage

_NAME = "take-over"
_BEGUN = "take-over.new"
_CONNECT_S = 1.0
"""The kernel connects at once, unless too many connect to a gateway that hangs."""
T = TypeVar("T")
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")
"""The process, the user and the group (unix(7))."""
_MOST_DESCRIPTORS = 64
_NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PIECE = 1 << 20


def listen_in(folder: Path) -> socket.socket:
    """Listen in the state folder of this gateway, in place of an earlier one. Raises ``OSError``.

    Only this user can connect.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as short:
            (folder / _BEGUN).unlink(missing_ok=True)
            listener.bind(f"{short}/{_BEGUN}")
        (folder / _BEGUN).chmod(0o600)
        listener.listen()
        (folder / _BEGUN).replace(folder / _NAME)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def connect_in(folder: Path) -> socket.socket:
    """Connect to the gateway that runs in a state folder. Raises ``OSError`` if none does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_S)
    try:
        with _short(folder) as short:
            connection.connect(f"{short}/{_NAME}")
    except OSError:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A short name of ``folder`` where there is one: the address of a unix socket has at most 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield short if Path(short).exists() else str(folder)
    finally:
        os.close(descriptor)


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
