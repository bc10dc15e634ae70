"""What a host knows of its models: from their files, and from the engines that have run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.engines.gpus import Gpus
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launch_line import launch_spec
from enginehouse.engines.state_file import Footprints
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.interfaces.launch_spec import LaunchSpec, ModelFacts
from enginehouse.interfaces.launchers import EngineProcess

_log = logging.getLogger(__name__)


class ModelFiles:
    """Asks the drivers about the files of one host's models, one file at a time, in a thread.

    ``on_facts`` gets the answer for a replica. ``estimated`` is live: the bytes that each replica will probably take.
    ``facts``: the last answer for each replica.
    """

    def __init__(self, on_facts: Callable[[str, ModelFacts], None]) -> None:
        self.estimated: dict[str, int] = {}
        self.facts: dict[str, ModelFacts] = {}
        self._on_facts = on_facts
        self._wanted: dict[str, ManagedReplica] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks = BackgroundTasks()

    def follow(self, replicas: Mapping[str, ManagedReplica], estimates: Mapping[str, int | None]) -> None:
        """Read the files of new and changed ones among ``replicas``, and drop the facts of all others.

        ``estimates``: the bytes that servers elsewhere expect some of them to take.
        """
        for replica in self._wanted.keys() - replicas.keys():
            self.estimated.pop(replica, None)
            self.facts.pop(replica, None)
        before, self._wanted = self._wanted, dict(replicas)
        for replica, managed in replicas.items():
            # what a configured command loads, only its author knows
            if managed != before.get(replica) and managed.server is None and not managed.model.command:
                self._tasks.start(self._read(replica, managed))
        for replica, memory in estimates.items():
            if memory:
                self.estimated[replica] = memory

    def close(self) -> None:
        """Read nothing more."""
        self._tasks.cancel()

    async def _read(self, replica: str, managed: ManagedReplica) -> None:
        async with self._one_at_a_time:
            if self._wanted.get(replica) != managed:
                return
            try:
                spec = launch_spec(managed.model_name, managed.model, managed.driver.launch, managed.rules)
                facts = await run_slowly(_inspect, managed.driver.launch, spec)
            except Exception as error:
                _log.warning("The files of model '%s' cannot be read: %s", managed.model_name, error or repr(error))
                return
        if facts is not None and self._wanted.get(replica) == managed:
            self.estimated.pop(replica, None)
            self.facts[replica] = facts
            if facts.memory:
                self.estimated[replica] = facts.memory
            self._on_facts(replica, facts)


def _inspect(driver: SupportsLaunch, spec: LaunchSpec) -> ModelFacts | None:
    """What the files say; ``None`` if some are missing, which is reported at start, or on another machine."""
    return None if driver.why_not(spec) else driver.inspect(spec)


_TIMEOUT_S = 5.0


class LearnedFacts:
    """Facts of the replicas of one host, which ``gpus`` and engines tell. They are live.

    ``measured``: the most bytes seen for each replica since its last ``reset``, on the GPUs or, if it has nothing
    there, in main memory. ``asleep``: the bytes that each sleeping one has kept. ``reported``: how many requests each
    engine says that it serves at once. ``footprints`` keeps the first for the next gateway, by the launch line.
    """

    def __init__(self, gpus: Gpus, footprints: Footprints) -> None:
        self.measured: dict[str, int] = {}
        self.asleep: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self._gpus = gpus
        self._footprints = footprints
        self._resets: dict[str, object] = {}

    def reset(self, replica: str, footprint: str | None = None) -> None:
        """Drop what is known, but for what an earlier gateway measured with the same launch line."""
        self._resets[replica] = object()
        for facts in (self.measured, self.asleep, self.reported):
            facts.pop(replica, None)
        if footprint is not None and (known := self._footprints.known.get(footprint)):
            self.measured[replica] = known

    def expect(self, replica: str, footprint: str | None, estimate: int) -> None:
        """Drop what was measured with other files of the model, which told another ``estimate`` of its bytes."""
        if footprint is not None and self._footprints.forget_others(footprint, estimate):
            self.measured.pop(replica, None)

    def remove(self, replica: str) -> None:
        """Drop what is known of a replica that is removed."""
        self.reset(replica)
        del self._resets[replica]

    def report(self, replica: str, limit: int | None) -> None:
        """Take the number of requests that an engine says that it serves at once."""
        self.reported.pop(replica, None)
        if limit:
            self.reported[replica] = limit

    async def measure(self, replica: str, process: EngineProcess, footprint: str | None) -> None:
        """Measure an engine that is awake. A failure is logged."""
        since = self._resets.get(replica)
        memory = await self._read(replica, process)
        if memory and since is self._resets.get(replica) and memory > self.measured.get(replica, 0):
            # the most ever: caches grow with requests, and a swap must find room for all of it
            self.measured[replica] = memory
            if footprint is not None:
                self._footprints.put(footprint, memory)

    async def frees_by_sleep(self, replica: str, process: EngineProcess) -> bool:
        """Measure an engine that sleeps. Whether it has freed half of its memory at least."""
        since = self._resets.get(replica)
        memory = await self._read(replica, process, asleep=True)
        if memory is not None and since is self._resets.get(replica):
            self.asleep[replica] = memory
        kept, before = self.asleep.get(replica), self.measured.get(replica)
        return kept is not None and before is not None and kept <= before / 2

    async def ends(self, replica: str, process: EngineProcess) -> None:
        """Note that an engine is about to end, and frees its memory on GPUs. A failure is logged."""
        if self._gpus.now:
            try:
                self._gpus.ended(await run_within(_TIMEOUT_S, process.processes()))
            except Exception as error:
                _log.warning("The processes of %s are not known: %r", replica, error)

    async def _read(self, replica: str, process: EngineProcess, *, asleep: bool = False) -> int | None:
        work = self._taken(replica, process, asleep) if self._gpus.now else process.memory()
        try:
            return await run_within(_TIMEOUT_S, work)
        except Exception as error:
            _log.warning("The memory of %s could not be measured: %r", replica, error)
            return None

    async def _taken(self, replica: str, process: EngineProcess, asleep: bool) -> int | None:
        on_gpus = await self._gpus.used_by(await process.processes())
        if on_gpus or (asleep and replica in self.measured):
            return on_gpus
        return await process.memory()
