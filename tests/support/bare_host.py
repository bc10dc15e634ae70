"""A host with engines, and nothing around it: no fleet, no relay and no scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from enginehouse import Launcher, ReplicaState, RequestError
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ShuttingDown
from enginehouse.domain.gpu import Gpu
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.engine_cache import CacheFolders
from enginehouse.engines.host import Host
from enginehouse.engines.host_context import HostContext, ManagedReplica
from enginehouse.engines.launches import Ports
from enginehouse.engines.probing import ProbedEngine
from enginehouse.engines.state_file import EngineOwnership, StateFile
from enginehouse.launchers import EngineProcess
from enginehouse.runtime import PluginId
from enginehouse.scheduling.scheduling_rules import facts_of_hosts
from enginehouse.telemetry.observers import Observers


class _Quiet:
    """A scheduler, or a swapper, that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class BareHost(Host):
    """Its engines are ``replicas``, which ``launcher`` launches and ``connect`` reaches by backend and address.

    ``changes``: the states that its engines were shown in. ``examined`` and ``exited``: the replicas of these events.
    ``gpus`` reads the host's GPUs.
    """

    def __init__(
        self,
        launcher: Launcher,
        state_file: StateFile,
        replicas: Mapping[str, ManagedReplica],
        connect: Callable[[str, str], ProbedEngine],
        *,
        gpus: Callable[[], Sequence[Gpu]] | None = None,
        name: str = "local",
        ports: Ports | None = None,
    ) -> None:
        self.changes: list[tuple[str, ReplicaState]] = []
        self.examined: list[str] = []
        self.exited: list[str] = []
        self._reach = connect
        context: Any = SimpleNamespace(
            config=Config(),
            facts=facts_of_hosts(Config()),
            observers=Observers(),
            scheduler=PluginId("scheduler", ""),
            make_launcher=lambda type, host: launcher,
            make_scheduler=_Quiet,
            make_swapper=lambda facts: _Quiet(),
            managed=lambda host: replicas,
            loading=lambda host: {},
            downloads=None,
        )
        nobody: Any = None
        super().__init__(
            name,
            cast(HostContext, context),
            ports or Ports(),
            state_file,
            nobody,
            nobody,
            EngineOwnership(),
            CacheFolders(state_file.folder),
        )
        self.gpus._read = gpus
        learned = self._launches.learned
        self.measured, self.asleep, self.reported = learned.measured, learned.asleep, learned.reported

    # --- what the gateway does

    def put(
        self, replica: str, managed: ManagedReplica, *, relaunch: bool, after: asyncio.Task[None] | None = None
    ) -> None:
        """As a change of the configuration, but without the end of an engine that is launched differently."""
        if replica not in self.engines:
            self.engines[replica] = self._engine(managed)
        else:
            self.engines[replica].reconfigure(managed)
            if relaunch:
                self.engines[replica].begin_anew()
        if after is not None:
            self.engines[replica].before = after

    def retire(self, replica: str) -> None:
        self.engines[replica].retire()

    def remove(self, replica: str) -> None:
        self._remove(replica)

    def found(self, replica: str, process: EngineProcess) -> None:
        self._note_found(replica, process)

    async def close(self, error: RequestError | None = None) -> None:
        await super().close(error or ShuttingDown("The gateway is shutting down"))

    # --- what it hears

    def engine_changed(self, engine: Engine) -> None:
        self.changes.append((engine.replica, engine.shown))

    def engine_examined(self, engine: Engine) -> None:
        self.examined.append(engine.replica)

    def engine_exited(self, engine: Engine) -> None:
        self.exited.append(engine.replica)

    def _engine(self, managed: ManagedReplica) -> Engine:
        return Engine(managed, self._launches, connect=partial(self._reach, managed.backend), listener=self)

    def _read_files(self) -> None:
        pass


class Heard(EngineListener):
    """Hears of one engine. ``states``: those that it was shown in."""

    def __init__(self, states: list[ReplicaState]) -> None:
        self.states = states

    def engine_changed(self, engine: Engine) -> None:
        self.states.append(engine.shown)


def address_of(engine: Engine) -> str | None:
    """The address at which the engine of a run listens; ``None`` if none runs."""
    return None if engine.run is None else engine.run.process.address
