"""The managed engines of one host."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from enginehouse.config.schema import Model
from enginehouse.domain.errors import ConfigError, EnginehouseError, LoadFailed, NotEnoughMemory
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.back_off import BackOff
from enginehouse.engines.bounded import bounded
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.ports import Ports
from enginehouse.engines.recorded import RecordedLauncher
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.engines.supervisor import Supervisor
from enginehouse.interfaces.drivers import Driver, EngineClient
from enginehouse.interfaces.launchers import EngineProcess, Launcher, LaunchLine
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_FIRST_LOOK_S = 2.0
"""How long a gateway that starts waits for engines it takes over; what is not ready by then becomes so later."""
_STRAY_STOP_S = 10.0
_MEASURE_EVERY_S = 30.0
_MEASURE_S = 5.0


class Managed(NamedTuple):
    """One replica: the backend that it is launched as, its model, and the driver for that."""

    backend: str
    model_name: str
    model: Model
    driver: Driver


class HostEngines:
    """Starts and stops the engines of one host, by replica: the ``Engines`` of its scheduler.

    ``on_state`` is called with every new state of a replica; ``on_gone`` after it, when one that was ready is so no
    more although nobody called ``stop``. ``measured`` is live: the most bytes that each replica was seen to take.
    ``connect`` makes a client from a backend's name and address. ``open`` and ``close`` are the life of it all.

    ``put``, ``retire`` and ``forget`` are how replicas come, change and go meanwhile.
    """

    def __init__(
        self,
        name: str,
        replicas: Mapping[str, Managed],
        *,
        launcher: Launcher,
        ports: Ports,
        connect: Callable[[str, str], EngineClient],
        state_file: StateFile,
        on_state: Callable[[str, ReplicaState], None],
        on_gone: Callable[[str], None],
    ) -> None:
        self.name = name
        self.measured: dict[str, int] = {}
        self._launcher = RecordedLauncher(name, launcher, state_file)
        self._state_file = state_file
        self._ports = ports
        self._connect = connect
        self._on_state = on_state
        self._on_gone = on_gone
        self._states: dict[str, ReplicaState] = {}
        self._back_offs: dict[str, BackOff] = {}
        self._crowded_by: dict[str, Sequence[str]] = {}
        self._editions: dict[str, int] = {}
        self._retired: set[str] = set()
        self.supervisors: dict[str, Supervisor] = {}
        self._before: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for replica, managed in replicas.items():
            self.put(replica, managed, relaunch=False)

    def begin(self) -> None:
        """Begin to measure what replicas take, on a host where nothing can have been left running."""
        self._spawn(self._keep_measuring())

    async def open(self) -> None:
        """Take over the engines that an earlier gateway left running on this host.

        Those that are not configured any more, or would be launched differently now, are stopped; they are gone when
        this returns.
        """
        self.begin()
        records = [(name, record) for name, record in self._state_file.records.items() if record.host == self.name]
        await asyncio.gather(*(self._take_over(name, record) for name, record in records))
        if self._before:
            await asyncio.wait(self._before.values(), timeout=_FIRST_LOOK_S)

    async def close(self) -> None:
        """Stop every engine."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors.values()), return_exceptions=True)

    def put(self, replica: str, managed: Managed, *, relaunch: bool, after: asyncio.Task[None] | None = None) -> None:
        """Have ``replica``, from now on like this, whether it was there or not.

        ``relaunch``: an engine that runs is not like that; retire it. It is not started before ``after`` is done: an
        engine of the same name has to be gone by then.
        """
        supervisor = self.supervisors.get(replica)
        if supervisor is None:
            self._states[replica] = ReplicaState.STOPPED
            self.supervisors[replica] = self._supervisor(replica, managed)
        else:
            supervisor.reconfigure(managed.model, managed.driver)
        if supervisor is None or relaunch:
            self._back_offs[replica] = BackOff()
            self._editions[replica] = self._editions.get(replica, 0) + 1
            self._crowded_by.pop(replica, None)
            self.measured.pop(replica, None)
        if after is not None:
            self._before[replica] = after

    def retire(self, replica: str) -> None:
        """Show ``replica`` as stopping until its engine is gone, so that it gets no more requests."""
        self._retired.add(replica)
        self._states[replica] = ReplicaState.STOPPING

    def forget(self, replica: str) -> None:
        """Let ``replica`` go, whose engine is gone."""
        del self.supervisors[replica], self._states[replica], self._back_offs[replica], self._editions[replica]
        self._retired.discard(replica)
        self._before.pop(replica, None)
        self._crowded_by.pop(replica, None)
        self.measured.pop(replica, None)

    def states(self) -> Mapping[str, ReplicaState]:
        """How each replica is now; live."""
        return self._states

    def refuse_too_soon(self, replica: str, evict: Sequence[str] = ()) -> None:
        """Raises ``LoadFailed`` while an engine is left alone after failures.

        It is not if all that it lacked was memory, and some was given back since, or will be by stopping ``evict``.
        """
        back_off = self._back_offs.get(replica) or BackOff()
        left = math.ceil(back_off.left(asyncio.get_running_loop().time()))
        stays = [other for other in self._running() if other not in evict]
        if left <= 0 or any(other not in stays for other in self._crowded_by.get(replica, ())):
            return
        times = "once" if back_off.failures == 1 else f"{back_off.failures} times in a row"
        why = self.supervisors[replica].problem
        text = f"'{replica}' failed {times} and is left alone for {left} s before it is tried again: {why}"
        raise LoadFailed(text, retry_after=left)

    async def start(self, replica: str) -> None:
        """Wake or launch an engine, or join its adoption, and wait until it is ready.

        Raises ``LoadFailed``: when it cannot be started, and at once while it is left alone after failures. One that is
        ``put`` to be launched in another way meanwhile is launched in that way.
        """
        while True:
            if (before := self._before.get(replica)) is not None:
                await asyncio.wait({before})
            supervisor, edition = self.supervisors.get(replica), self._editions.get(replica)
            if supervisor is None:
                raise LoadFailed(f"'{replica}' is not configured any more")
            try:
                await self._start(replica, supervisor)
            except EnginehouseError:
                if edition == self._editions.get(replica):
                    raise
            else:
                if edition == self._editions.get(replica):
                    return
            await supervisor.stop()

    async def _start(self, replica: str, supervisor: Supervisor) -> None:
        if supervisor.state is ReplicaState.READY:
            return
        self.refuse_too_soon(replica)
        self._crowded_by.pop(replica, None)
        try:
            await supervisor.start()
        except NotEnoughMemory:
            self._crowded_by[replica] = self._running()
            raise
        except ConfigError as error:
            raise LoadFailed(f"'{replica}' cannot be launched: {error}") from error
        await self._measure(replica)
        if self._states.get(replica) is not ReplicaState.READY:
            raise LoadFailed(f"'{replica}' went away as soon as it was ready: {supervisor.problem}")

    async def stop(self, replica: str, timeout: float | None) -> None:
        """Stop an engine, whatever it is doing, within ``timeout`` seconds or else the model's ``stop_timeout``.

        It has given its memory back when this returns.
        """
        if (supervisor := self.supervisors.get(replica)) is not None:
            await supervisor.stop(timeout)
            if replica in self._retired:  # there was no engine, and so no news of it
                self._note_state(replica, supervisor.state)

    def rest(self, replica: str) -> None:
        """Begin to let an idle replica sleep, if its model says so and its engine can, else to stop it.

        It is not ready any more when this returns; ``on_gone`` follows.
        """
        supervisor = self.supervisors[replica]
        if supervisor.state is ReplicaState.READY:
            self._spawn(self._rested(replica, supervisor.rest()))

    async def _rested(self, replica: str, rest: asyncio.Future[None]) -> None:
        await rest
        self._on_gone(replica)

    def _supervisor(self, replica: str, managed: Managed) -> Supervisor:
        return Supervisor(
            managed.backend,
            managed.model_name,
            managed.model,
            driver=managed.driver,
            launcher=self._launcher,
            ports=self._ports,
            connect=partial(self._connect, managed.backend),
            on_state=partial(self._note_state, replica),
        )

    def _note_state(self, replica: str, state: ReplicaState) -> None:
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.READY:
            self._back_offs[replica].ready(now)
        elif state is ReplicaState.FAILED:
            self._back_offs[replica].failed(now)
        before, was_retired = self._states[replica], replica in self._retired
        if state in AT_REST:
            self._retired.discard(replica)
        elif was_retired:
            state = ReplicaState.STOPPING
        self._states[replica] = state
        self._on_state(replica, state)
        if state is ReplicaState.FAILED and (was_retired or before in (ReplicaState.READY, ReplicaState.SLEEPING)):
            self._on_gone(replica)

    def _running(self) -> Sequence[str]:
        return [replica for replica, state in self._states.items() if state not in AT_REST]

    # --- adoption

    async def _take_over(self, name: str, record: EngineRecord) -> None:
        known = ((replica, supervisor) for replica, supervisor in self.supervisors.items() if supervisor.name == name)
        replica, supervisor = next(known, (None, None))
        line = _line_now(supervisor, record.port)
        wanted = line is not None and fingerprint(line) == record.fingerprint
        line = line or LaunchLine(command=(), port=record.port)
        log = supervisor.log if supervisor is not None and wanted else LogRing()
        process = await self._launcher.adopt(name, line, record.handle, log)
        if process is None:
            return
        if replica is not None and wanted:
            _log.info("%s still runs and is taken over", name)
            self._before[replica] = self._spawn(self._adopt(replica, process, record.port))
        else:
            _log.warning("%s still runs and is stopped: it is not configured like that any more", name)
            await process.stop(_STRAY_STOP_S)

    async def _adopt(self, replica: str, process: EngineProcess, port: int) -> None:
        supervisor = self.supervisors[replica]
        try:
            await supervisor.adopt(process, port)
            await self._measure(replica)
        except EnginehouseError:  # the supervisor has told of it
            if supervisor.state is ReplicaState.FAILED:
                self._on_gone(replica)

    # --- memory

    async def _measure(self, replica: str) -> None:
        edition = self._editions.get(replica)
        try:
            memory = await bounded(self.supervisors[replica].memory(), _MEASURE_S)
        except Exception as error:
            _log.warning("The memory of %s could not be measured: %r", replica, error)
            return
        if memory and edition == self._editions.get(replica):
            self.measured[replica] = max(memory, self.measured.get(replica, 0))

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_EVERY_S)
            for replica, state in list(self._states.items()):
                if state is ReplicaState.READY:
                    await self._measure(replica)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _line_now(supervisor: Supervisor | None, port: int) -> LaunchLine | None:
    """How an engine would be launched now, if it would be at all."""
    try:
        return supervisor.launch_line(port) if supervisor is not None else None
    except ConfigError:
        return None
