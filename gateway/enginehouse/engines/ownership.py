"""Which gateway starts and stops engines, while one takes over from another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from enginehouse.domain.errors import ShuttingDown
from enginehouse.interfaces.launchers import EngineProcess


class EngineOwnership:
    """The right of this gateway to start, stop, wake and put to sleep its engines. Each of these is an *act*.

    While it is paused, acts wait. Once it is given up, engines are the successor's: none of them is touched any more.
    """

    def __init__(self) -> None:
        self._held = asyncio.Event()
        self._held.set()
        self._acts = 0
        self._none_acts = asyncio.Event()
        self._none_acts.set()
        self.given_up = False

    @property
    def held(self) -> bool:
        """Whether acts may begin now."""
        return self._held.is_set() and not self.given_up

    @asynccontextmanager
    async def act(self) -> AsyncIterator[None]:
        """One act, in its turn. Raises ``ShuttingDown`` once the engines are another gateway's."""
        await self._held.wait()
        if self.given_up:
            raise ShuttingDown("Another gateway has taken over the engines; send the request again")
        self._acts += 1
        self._none_acts.clear()
        try:
            yield
        finally:
            self._acts -= 1
            if not self._acts:
                self._none_acts.set()

    async def pause(self) -> None:
        """Let no act begin, and return when those in progress have ended."""
        self._held.clear()
        await self._none_acts.wait()

    def resume(self) -> None:
        """Let acts begin again."""
        self._held.set()

    async def stop(self, process: EngineProcess, timeout: float) -> None:
        """Stop an engine, as one act. Does nothing once it is another gateway's."""
        with suppress(ShuttingDown):
            async with self.act():
                await process.stop(timeout)

    def give_up(self) -> None:
        """Leave the engines to another gateway, for good. Acts that wait end with an error."""
        self.given_up = True
        self._held.set()
