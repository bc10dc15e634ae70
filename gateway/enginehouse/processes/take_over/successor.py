"""The gateway that has taken over, as the one that leaves sees it."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from enginehouse.aio.timeouts import run_within
from enginehouse.processes.take_over.channel import ChannelClosed, MessageChannel, connect_in
from enginehouse.processes.take_over.messages import Hello, PassedConnection

_log = logging.getLogger(__name__)

_READ_S = 10.0
"""A gateway that has not read for so long hangs, and gets no connections any more."""


class SuccessorGateway:
    """Passes clients' connections to the gateway that has taken over in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._passed: asyncio.Queue[tuple[int, PassedConnection] | None] = asyncio.Queue()
        self._passing = asyncio.ensure_future(self._pass_all())

    def take(self, descriptor: int, received: bytes, stream: bytes = b"") -> None:
        """Give the successor a client's connection, whose ``descriptor`` the caller closes, with what it has sent.

        ``stream``: the state of the stream that is the beginning of its answer.
        """
        self._passed.put_nowait((os.dup(descriptor), PassedConnection(received=received, stream=stream)))

    async def close(self) -> None:
        """Return when the successor has every connection."""
        self._passed.put_nowait(None)
        await self._passing

    async def _pass_all(self) -> None:
        channel: MessageChannel | None = None
        hangs = False
        while (passed := await self._passed.get()) is not None:
            descriptor, connection = passed
            try:
                if not hangs:
                    channel = channel or await self._connect()
                    await run_within(_READ_S, channel.send(connection, [descriptor]))
            except (OSError, ChannelClosed) as error:
                hangs = isinstance(error, TimeoutError)
                why = f"it has not read for {_READ_S:g} s, and gets no others" if hangs else str(error)
                _log.warning("The new gateway did not take a client's connection, which is closed: %s", why)
                if channel is not None:
                    channel.close()
                    channel = None
            finally:
                os.close(descriptor)
        if channel is not None:
            channel.close()

    async def _connect(self) -> MessageChannel:
        channel = MessageChannel(connect_in(self.folder))
        await channel.send(Hello.of_this_process("connections"))
        return channel
