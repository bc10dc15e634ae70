"""The managed engines of one host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.schema import HostSettings
from enginehouse.domain.errors import ConfigError, EnginehouseError, LoadFailed, NotEnoughMemory
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.adoption import Adoption
from enginehouse.engines.back_off import Pauses
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.memory_meter import MemoryMeter
from enginehouse.engines.second_tries import SecondTries
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import Place
from enginehouse.scheduling.collaborators import EngineControl

_MEASURE_EVERY_S = 30.0


class EnginePool(EngineControl):
    """Starts and stops the engines of one host, by replica.

    ``on_state`` gets every new state of a replica. ``on_examined`` follows when a ready engine has told its limit.
    ``on_exited`` follows when a replica is no longer ready without a call of ``stop``. ``connect`` makes a client from
    a backend's name and its address. These are live: ``measured``, the most bytes measured for each replica;
    ``asleep``, the bytes that each sleeping engine has kept; ``reported``, how many requests each engine says that it
    serves at once.

    ``open`` and ``close`` frame the life of a pool. ``put``, ``retire`` and ``remove`` change its replicas meanwhile.
    """

    def __init__(
        self,
        launcher: HostLauncher,
        replicas: Mapping[str, ManagedReplica],
        *,
        connect: Callable[[str, str], EngineClient],
        on_state: Callable[[str, ReplicaState], None],
        on_examined: Callable[[str], None],
        on_exited: Callable[[str], None],
    ) -> None:
        self.name = launcher.host
        self.gpus = launcher.gpus
        self._launcher = launcher
        self._meter = MemoryMeter(self.gpus, launcher.state_file.footprints)
        self.measured = self._meter.measured
        self.asleep = self._meter.asleep
        self.reported: dict[str, int] = {}
        self._connect = connect
        self._on_state = on_state
        self._on_examined = on_examined
        self._on_exited = on_exited
        self._pauses = Pauses(self._running, lambda replica: self.engines[replica].problem)
        self._second_tries = SecondTries(self.gpus)
        self.engines: dict[str, Engine] = {}
        self._tasks = BackgroundTasks()
        self._adoption = Adoption(launcher, self.engines, self._tasks, self._examine, on_exited)
        self._before = self._adoption.before
        for replica, managed in replicas.items():
            self.put(replica, managed, relaunch=False)

    def reconfigure(self, settings: HostSettings) -> None:
        """Use other ports and GPUs for engines launched from now on."""
        self._launcher.reconfigure(settings)

    def begin(self) -> None:
        """Start measuring memory, on a host where no engine can be left running."""
        self._tasks.start(self._keep_measuring())
        self.gpus.begin()

    async def open(self, drained: asyncio.Future[None] | None = None) -> None:
        """Take over the engines that an earlier gateway left running on this host.

        Engines that are no longer configured, or configured differently, are stopped before any is started: at once or,
        if the earlier gateway still uses them, when it has ``drained``.
        """
        self.begin()
        await self._adoption.open(drained)

    async def close(self) -> None:
        """Stop every engine that is still this gateway's. Servers elsewhere keep what they have loaded."""
        self._tasks.cancel()
        self._launcher.close()
        self.gpus.close()
        engines = self.engines.values()
        stays = self._launcher.ownership.given_up
        ends = (each.leave() if stays or each.elsewhere else each.stop() for each in engines)
        await asyncio.gather(*ends, return_exceptions=True)

    def put(
        self, replica: str, managed: ManagedReplica, *, relaunch: bool, after: asyncio.Task[None] | None = None
    ) -> None:
        """Add ``replica`` or change its settings.

        ``relaunch``: a running engine does not fit the settings, and the caller retires it. ``after``: the retirement
        of another engine of the same name, which must end before this one starts.
        """
        is_new = replica not in self.engines
        if is_new:
            connect, on_state = partial(self._connect, managed.backend), partial(self._note_state, replica)
            self.engines[replica] = Engine(managed, self._launcher, connect=connect, on_state=on_state)
        else:
            self.engines[replica].reconfigure(managed)
        if is_new or relaunch:
            self._pauses.reset(replica)
            self.engines[replica].version += 1
            self.reported.pop(replica, None)
            self._meter.reset(replica)
            self._meter.recall(replica, self.engines[replica])
        if after is not None:
            self._before[replica] = after

    def retire(self, replica: str) -> None:
        """Show ``replica`` as stopping until its engine has stopped, so that it gets no new requests."""
        self.engines[replica].retire()

    def remove(self, replica: str) -> None:
        """Remove a replica whose engine has stopped."""
        self.engines.pop(replica).version += 1
        self._pauses.remove(replica)
        self._before.pop(replica, None)
        self._meter.reset(replica)
        self.reported.pop(replica, None)

    def states(self) -> Mapping[str, ReplicaState]:
        return {replica: engine.shown for replica, engine in self.engines.items()}

    def state_of(self, replica: str) -> ReplicaState | None:
        engine = self.engines.get(replica)
        return None if engine is None else engine.shown

    @asynccontextmanager
    async def prepared(self, replica: str, evict: Sequence[str]) -> AsyncIterator[None]:
        await self._pauses.wait_out(replica, evict)
        engine = self.engines.get(replica) if evict else None
        if engine is None:
            yield
            return
        try:
            await engine.prepare()
            yield
        finally:
            await engine.give_place_up()

    async def start(self, replica: str) -> None:
        """Wake or launch an engine, or join its adoption, and wait until it is ready.

        Raises ``LoadFailed`` if it cannot be started, and at once during the pause after failures. If ``put`` changes
        the launch line meanwhile, the engine is launched again by the new one.
        """
        while True:
            if (before := self._before.get(replica)) is not None:
                await asyncio.wait({before})
            if (engine := self.engines.get(replica)) is None:
                raise LoadFailed(f"'{replica}' is no longer configured")
            version = engine.version
            try:
                await self._start(replica, engine)
            except EnginehouseError:
                if version == engine.version:
                    raise
            else:
                if version == engine.version:
                    return
            await engine.stop()  # it was launched by the line of before

    async def _start(self, replica: str, engine: Engine) -> None:
        if engine.state is ReplicaState.READY:
            return
        self._pauses.refuse_too_soon(replica)
        self._pauses.note_start(replica)
        try:
            if self._adoption.strays:
                await asyncio.wait(self._adoption.strays)
            await self._prepare_gpus(replica, engine)
            await engine.start(self._second_tries.begin(replica, self.measured.get(replica)))
        except NotEnoughMemory:
            self._pauses.note_crowded(replica)
            raise
        except ConfigError as error:
            raise LoadFailed(f"'{replica}' cannot be launched: {error}") from error
        examination = self._tasks.start(self._examine(replica, engine))
        if replica not in self.measured:  # else it was as large, and took as many requests, the last time
            await examination
        if engine.shown is not ReplicaState.READY:
            raise LoadFailed(f"'{replica}' exited as soon as it was ready: {engine.problem}")

    async def _prepare_gpus(self, replica: str, engine: Engine) -> None:
        """Choose the GPUs of an engine that is launched, and wait until ended engines have freed them."""
        if engine.elsewhere or self._launcher.places_gpus:
            return
        if not engine.is_asleep:
            wanted = engine.managed.model.gpus
            engine.gpus = await self.gpus.assign(replica, wanted)
        await self.gpus.until_free(replica, self.measured.get(replica))

    async def _examine(self, replica: str, engine: Engine) -> None:
        """Measure the memory of an engine that has just become ready, and ask for its limit."""
        try:
            limit, _ = await asyncio.gather(engine.concurrency(), self._meter.measure(replica, engine))
            if limit:
                self.reported[replica] = limit
            else:
                self.reported.pop(replica, None)
        finally:  # an engine stays ready even if nobody waits for it any more
            if self.state_of(replica) is ReplicaState.READY:
                self._on_examined(replica)

    async def stop(self, replica: str, timeout: float | None) -> None:
        """Stop an engine in any state within ``timeout`` seconds, by default the model's ``stop_timeout``.

        The engine has freed its memory when this returns.
        """
        if (engine := self.engines.get(replica)) is not None:
            if self.gpus.now:
                self.gpus.ended(await engine.processes())
            await engine.stop(timeout)

    async def evict(self, replica: str) -> None:
        """Free the memory of an engine: by sleep if its model says so and that frees most of it, else by its end."""
        engine = self.engines.get(replica)
        if engine is not None and engine.state is ReplicaState.READY and not engine.elsewhere:
            await engine.sleep_or_stop(evicted=True)
            if engine.is_asleep:
                await self._meter.measure_asleep(replica, engine)
            if engine.is_asleep and self._meter.frees_by_sleep(replica):
                return
        await self.stop(replica, None)

    def sleep_or_stop(self, replica: str) -> None:
        """Begin to put an idle replica to sleep or, where model or engine do not allow it, to stop it.

        The replica is no longer ready when this returns; ``on_exited`` follows.
        """
        engine = self.engines[replica]
        if engine.state is ReplicaState.READY:
            self._tasks.start(self._report_exit(replica, engine.sleep_or_stop()))

    async def _report_exit(self, replica: str, end: asyncio.Future[None]) -> None:
        await end
        engine = self.engines.get(replica)
        if engine is not None and engine.is_asleep:
            await self._meter.measure_asleep(replica, engine)
        self._on_exited(replica)

    def _note_state(self, replica: str, shown: ReplicaState) -> None:
        engine = self.engines[replica]
        state, before = engine.state, engine.before
        self._pauses.note(replica, state)
        self._launcher.state_file.sleepers.follow(engine.name, state, may_sleep=engine.may_sleep)
        if state is not ReplicaState.SLEEPING:
            self._meter.asleep.pop(replica, None)
        if state in AT_REST:
            self.gpus.release(replica)
        self._on_state(replica, shown)
        was_up = before in (ReplicaState.READY, ReplicaState.SLEEPING)
        if shown in (*AT_REST, ReplicaState.SLEEPING) and (was_up or before is ReplicaState.STOPPING):
            self._second_tries.note_end()
        if (state in AT_REST and was_up) or (state is ReplicaState.FAILED and engine.was_retired):
            self._on_exited(replica)

    def _running(self) -> Sequence[str]:
        return [replica for replica, engine in self.engines.items() if engine.shown not in AT_REST]

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_EVERY_S)
            for replica, engine in list(self.engines.items()):
                if self.state_of(replica) is ReplicaState.READY:  # it may have been removed meanwhile
                    await self._meter.measure(replica, engine)

    def found(self, replica: str, process: EngineProcess) -> None:
        """Take over a model that a server elsewhere has loaded by itself."""
        before = self._before.get(replica)
        if self.state_of(replica) in AT_REST and (before is None or before.done()):
            self._adoption.begin(replica, process, Place(port=0))
