"""Accepts connections on a socket on which other workers accept too, so that each gets a fair part of them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from enginehouse.aio.tasks import BackgroundTasks

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_MORE: Final = 4
_SHARE: Final = 1.25
"""A worker that has this many times the connections of another, and some more, leaves new ones to the others."""
_PAUSE_S: Final = 0.001
_NO_ROOM_S: Final = 1.0
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FairListener:
    """Accepts from ``open`` to ``close``. ``make`` returns the protocol of a connection.

    ``counts``: the connections of each worker, in memory that all share; the cell ``own`` is this one's. ``count``
    returns its number now.

    The kernel wakes every worker, and without a rule the first one takes all that come at once. What the others do not
    take in a moment, perhaps because their loops are held, this one takes all the same.
    """

    def __init__(
        self,
        listening: socket.socket,
        counts: memoryview,
        own: int,
        make: Callable[[], asyncio.BaseProtocol],
        count: Callable[[], int],
    ) -> None:
        self._listening = listening
        self._counts = counts
        self._own = own
        self._make = make
        self._count = count
        self._tasks = BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listening, self._readable)

    def close(self) -> None:
        """Accept nothing more. Connections that were accepted go on."""
        self._pause()
        self._listening.close()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to do."""

    def _pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._listening.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listening)

    def _pause_for(self, seconds: float) -> None:
        self._pause()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        asyncio.get_running_loop().add_reader(self._listening, self._readable)
        self._accept()

    def _readable(self) -> None:
        self._counts[self._own] = mine = self._count()
        if mine > _MORE + _SHARE * min(self._counts):
            self._pause_for(_PAUSE_S)
        else:
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError as error:  # mostly another worker was faster
            if error.errno in _NO_ROOM:
                _log.error("No connection can be accepted: %s", error.strerror)
                self._pause_for(_NO_ROOM_S)
            return
        self._counts[self._own] += 1
        self._tasks.start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:  # the client has left meanwhile
            connection.close()
