"""Finds launched engines that answer no health check because they hang, not because they compute."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from enginehouse.backends import BackendStatus
from enginehouse.runtime import run_within
from enginehouse.services import ServiceGateway

_STILL: Final = 0.01
"""An engine that takes a smaller share of a processor computes nothing. Threads that only wait take far less."""


class LateProbes:
    """The late probes of one engine, ``known`` of them in a row. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self.known = 0
        self._since: float | None = None
        self._last: tuple[float, float] | None = None
        self._still = 0

    def why_hung(self, late: int, now: float, used: float | None, failures: int, hung: float, *, serves: bool) -> str:
        """Why the engine hangs, for people, after so many ``late`` probes in a row; empty if it may compute.

        It hangs if it has taken no processor time through ``failures`` of them; or after ``hung`` seconds of them in
        which it ``serves`` no request, for one that reads a long prompt may answer nothing else. ``used``: the
        processor time that it has taken so far, ``None`` if unknown.
        """
        last, more, self.known = self._last, late - self.known, late
        self._last = None if used is None else (now, used)
        if used is not None and last is not None:
            stands_still = used - last[1] < _STILL * (now - last[0])
            self._still = self._still + more if stands_still else 0
        self._since = now if self._since is None else self._since
        silent = now - self._since
        if self._still >= failures:
            return f"The engine hung: it answered no health check and computed nothing for {silent:.0f} s"
        if silent >= hung and not serves:
            return f"The engine hung: it answered no health check for {silent:.0f} s and served no request"
        return ""


class FrozenEngines:
    """Follows the late probes of all launched engines. ``give_up`` gets a backend, and why it is given up."""

    def __init__(self, gateway: ServiceGateway, give_up: Callable[[str, str], Awaitable[None]]) -> None:
        self._gateway = gateway
        self._give_up = give_up
        self._probes: dict[str, LateProbes] = {}

    async def look(self) -> None:
        """To be called about once a second."""
        gateway, checks = self._gateway, self._gateway.table("checks")
        remote, before, self._probes = gateway.table("backends"), self._probes, {}
        if not checks.hung:
            return
        more = []
        for backend in gateway.backends:
            name, late = backend.name, gateway.backends.late_probes(backend.name)
            if not late or name in remote:
                continue
            probes = before.get(name)
            self._probes[name] = probes = LateProbes() if probes is None or late < probes.known else probes
            if late > probes.known:
                more.append(self._judge(backend, probes, late))
        await asyncio.gather(*more)

    async def _judge(self, backend: BackendStatus, probes: LateProbes, late: int) -> None:
        checks = self._gateway.table("checks")
        try:
            used = await run_within(checks.timeout, self._gateway.backends.processor_seconds(backend.name))
        except Exception:  # the launcher cannot say, and the gateway has logged why
            used = None
        now, serves = self._gateway.clock.now(), backend.pending > 0
        if why := probes.why_hung(late, now, used, checks.failures, checks.hung, serves=serves):
            await self._give_up(backend.name, why)
