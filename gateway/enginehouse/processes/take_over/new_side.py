"""The side of a new gateway: takes over from the one that runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import socket

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError
from enginehouse.interfaces.accounting import TakenLimit
from enginehouse.processes.take_over.channel import ChannelClosed, MessageChannel, connect_in
from enginehouse.processes.take_over.messages import (
    Built,
    EnginesLeft,
    EnginesTaken,
    Hello,
    M,
    Retired,
    TakeOverMessage,
    TakeOverOffer,
)

_log = logging.getLogger(__name__)

_SAID_S = 10.0
"""After so long without an answer, the operator learns what is waited for."""
_ANSWER_S = 40.0
"""A gateway that has not answered by then hangs. It may have waited for engines that are being stopped."""
_END_S = 60.0
"""A gateway that has drained ends within this time: it writes its usage and stops its workers."""


class TakeOverFailed(EnginehouseError):
    """The running gateway goes on, and the new one does not start."""


class Predecessor:
    """The running gateway, seen from the one that takes over.

    ``listening``: its listening sockets, from ``connect`` on. ``pid``: its process.
    """

    def __init__(self, channel: MessageChannel) -> None:
        self.listening: Sequence[socket] = ()
        self.pid = 0
        self._channel = channel
        self._retired = asyncio.Event()
        self._ends_within = 0.0

    @classmethod
    def find(cls, folder: Path) -> Predecessor | None:
        """The gateway that runs in the state folder ``folder``, ``None`` if there is none."""
        try:
            return cls(MessageChannel(connect_in(folder)))
        except OSError:
            return None

    async def connect(self) -> None:
        """Get the listening sockets, on which the running gateway goes on to accept. Raises ``TakeOverFailed``."""
        offer, descriptors = await self._ask(Hello.of_this_process("engines"), TakeOverOffer)
        if offer.refused:
            raise self._failed(f"and keeps serving: process {offer.pid} refuses: {offer.refused}")
        self.listening = [socket(fileno=each) for each in descriptors]
        self.pid = offer.pid

    async def leave_engines(self) -> int:
        """Have the running gateway accept nothing and touch no engine. Returns the lock of the state folder.

        From now on, an end of the conversation has it go on. Raises ``TakeOverFailed``.
        """
        left, descriptors = await self._ask(Built(), EnginesLeft)
        if left.refused or not descriptors:
            raise self._failed(f"and keeps serving: it refuses: {left.refused}")
        return descriptors[0]

    async def retire(self) -> Mapping[str, TakenLimit]:
        """Make the running gateway drain and end. Raises ``TakeOverFailed`` if it goes on serving.

        Returns what is taken of the limits of keys.
        """
        retired, _ = await self._ask(EnginesTaken(), Retired)
        self._ends_within = retired.ends_within + _END_S
        self._retired.set()
        return retired.limits

    async def gone(self) -> None:
        """Wait until it has retired, drained and ended; or until it should have, for it may hang.

        Its answers are lost then, and its engines are free.
        """
        await self._retired.wait()
        try:
            await run_within(self._ends_within, self._channel.receive(Retired))
        except ChannelClosed:
            pass
        except TimeoutError:
            text = "Process %d has not ended %g s after it handed over, and is waited for no more: end it with SIGKILL"
            _log.error(text, self.pid, self._ends_within)

    def close(self) -> None:
        """End the conversation: the running gateway goes on unless it has retired."""
        self._channel.close()

    async def _ask(self, message: TakeOverMessage, answer: type[M]) -> tuple[M, list[int]]:
        pid = self._channel.peer
        who = f"process {pid}" if pid else "it"
        said = asyncio.get_running_loop().call_later(
            _SAID_S, _log.warning, "Waiting for the running gateway: %s has not answered yet", who
        )
        try:
            return await run_within(_ANSWER_S, self._send_and_receive(message, answer))
        except ChannelClosed as error:
            raise self._failed(f"and keeps serving: {error}") from None
        except TimeoutError:
            remedy = "if it hangs, end it with SIGKILL and start this one again, which finds its engines"
            raise self._failed(f"because {who} has not answered for {_ANSWER_S:g} s: {remedy}") from None
        finally:
            said.cancel()

    async def _send_and_receive(self, message: TakeOverMessage, answer: type[M]) -> tuple[M, list[int]]:
        with suppress(ChannelClosed):  # what the other one has said last can still be read
            await self._channel.send(message)
        return await self._channel.receive(answer)

    def _failed(self, why: str) -> TakeOverFailed:
        self.close()
        return TakeOverFailed(f"The running gateway could not be taken over, {why}")
