"""Second tries of starts that find too little memory, because an engine has just ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from enginehouse.engines.host_gpus import HostGpus

_log = logging.getLogger(__name__)

_SOON_S = 10.0
_SECOND_TRIES_S = (0.5, 1.0, 2.0, 4.0)
"""The longest waits before second tries, within so many seconds of the end of another engine."""

TryAgain = Callable[[], Awaitable[bool]]
"""Called after each start that found too little memory. Returns whether to start again, when it is time to."""


async def never_again() -> bool:
    """Start only once."""
    return False


class SecondTries:
    """Grants second tries on one host to starts that begin within seconds of the end of another engine."""

    def __init__(self, gpus: HostGpus) -> None:
        self._gpus = gpus
        self._ended_at: float | None = None

    def note_end(self) -> None:
        """Note that an engine has ended or gone to sleep."""
        self._ended_at = asyncio.get_running_loop().time()

    def begin(self, replica: str, needed: int | None) -> TryAgain:
        """Begin the start of ``replica``, which needs so many bytes if that is known."""
        now = asyncio.get_running_loop().time()
        if self._ended_at is None or now - self._ended_at > _SOON_S:
            return never_again
        pauses = iter(_SECOND_TRIES_S)

        async def again() -> bool:
            pause = next(pauses, None)
            if pause is None:
                return False
            text = "%s found too little memory just after the end of an engine: it is tried again within %g s"
            _log.info(text, replica, pause)
            await self._gpus.until_room(replica, needed, pause)
            return True

        return again
