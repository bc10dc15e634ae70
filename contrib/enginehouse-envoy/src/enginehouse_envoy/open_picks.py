"""The requests whose end Envoy's access log will report."""

from __future__ import annotations

import asyncio
import itertools
import os

from enginehouse.picking import Pick

HEADER = "x-enginehouse-pick"
"""The header by which the access log names a request."""


class OpenPicks:
    """Keeps requests open until the access log reports their end. Without an access log they end at once.

    ``logs``: how many logs are connected.
    """

    def __init__(self) -> None:
        self.logs = 0
        self._open: dict[str, Pick] = {}
        self._ids = itertools.count(1)
        self._prefix = os.urandom(6).hex()

    def __len__(self) -> int:
        return len(self._open)

    def keep(self, pick: Pick) -> str:
        """Keep ``pick`` until its end is reported. Returns its name in the log."""
        name = f"{self._prefix}{next(self._ids):x}"
        if self.logs:
            self._open[name] = pick
        else:
            asyncio.get_running_loop().call_soon(pick.ended)  # it may be in the middle of ``begin``
        return name

    def take(self, name: str) -> Pick | None:
        """The request of that ``name``, whose end is known now."""
        return self._open.pop(name, None)

    def log_lost(self) -> None:
        """Note that a log is disconnected. After the last one nobody reports ends, so all requests end."""
        self.logs -= 1
        if not self.logs:
            for pick in self._open.values():
                pick.ended()
            self._open.clear()
