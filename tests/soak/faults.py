"""What happens to engines and what operators do during a soak, and how it heals."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping

import httpx

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

_BETWEEN_S = (0.5, 3.0)
_LASTS_S = (1.0, 8.0)
_FAULTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("error", {"status": 500}),
    ("error", {"status": 503}),
    ("hang", {}),
    ("slow", {"per_chunk": "1m"}),
    ("drop", {"after": 0}),
    ("drop", {"after": 9}),
    ("malformed", {"after": 9}),
    ("malformed", {"after": 9, "framing": True}),
)


class Faults:
    """One fault or act of an operator after the other. At most two engines fail at the same time.

    ``configuration`` makes another configuration for each reload.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        gateway: RunningGateway,
        engines: Mapping[str, SimEngine],
        configuration: Callable[[], str],
        rng: random.Random,
    ) -> None:
        self._http = http
        self._gateway = gateway
        self._engines = engines
        self._configuration = configuration
        self._rng = rng
        self._failing: dict[str, asyncio.Task[None]] = {}
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        acts = (self._fail, self._fail, self._fail, self._move, self._reload, self._drain)
        while True:
            await asyncio.sleep(self._rng.uniform(*_BETWEEN_S))
            await self._rng.choice(acts)()

    async def heal(self) -> None:
        """Wait until all faults have ended."""
        await asyncio.gather(*self._failing.values())

    async def _fail(self) -> None:
        self._failing = {name: task for name, task in self._failing.items() if not task.done()}
        well = [name for name in self._engines if name not in self._failing]
        if len(self._failing) < 2:
            name = self._rng.choice(well)
            way = self._rng.choice((self._killed, self._stopped, self._faulty))
            self._failing[name] = asyncio.ensure_future(way(self._engines[name]))

    async def _killed(self, engine: SimEngine) -> None:
        self.done["engine killed"] += 1
        await asyncio.to_thread(engine.kill)
        await asyncio.sleep(self._rng.uniform(*_LASTS_S))
        await asyncio.to_thread(engine.start)

    async def _stopped(self, engine: SimEngine) -> None:
        self.done["engine stopped for a while"] += 1
        os.kill(engine.pid, signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(*_LASTS_S))
        os.kill(engine.pid, signal.SIGCONT)

    async def _faulty(self, engine: SimEngine) -> None:
        kind, parameters = self._rng.choice(_FAULTS)
        self.done[f"engine's fault: {kind}"] += 1
        await asyncio.to_thread(engine.fault, kind, **parameters)
        await asyncio.sleep(self._rng.uniform(*_LASTS_S))
        await asyncio.to_thread(engine.clear)

    async def _move(self) -> None:
        rows = (await self._http.get(f"{self._gateway.url}/api/requests")).json()["requests"]
        if rows:
            url = f"{self._gateway.url}/api/requests/{self._rng.choice(rows)['id']}/move"
            answer = await self._http.post(url, json={"to": self._rng.choice([*self._engines])})
            self.done[f"move answered {answer.status_code}"] += 1

    async def _reload(self) -> None:
        self._gateway.write_config(self._configuration())
        answer = await self._http.post(f"{self._gateway.url}/api/reload")
        self.done[f"reload answered {answer.status_code}"] += 1

    async def _drain(self) -> None:
        name = self._rng.choice([*self._engines])
        for act in ("drain", "undrain"):
            answer = await self._http.post(f"{self._gateway.url}/api/backends/{name}/{act}")
            self.done[f"{act} answered {answer.status_code}"] += 1
            await asyncio.sleep(self._rng.uniform(*_BETWEEN_S))
