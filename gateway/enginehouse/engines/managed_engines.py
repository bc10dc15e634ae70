"""Every engine that the gateway launches, and every model that it loads elsewhere, on all hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks, wait_for_first
from enginehouse.config.routing import Aliases
from enginehouse.config.schema import Config
from enginehouse.domain.errors import InvalidRequest, ModelNotFound, ReplicaLost, RequestError, ShuttingDown
from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.engine import Engine
from enginehouse.engines.engine_cache import CacheFolders, MakeKeeper
from enginehouse.engines.gpus import HostGpu
from enginehouse.engines.host import Host, HostChange
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.host_memory import HostMemory, host_memory
from enginehouse.engines.launches import Ports
from enginehouse.engines.loads import load
from enginehouse.engines.model_servers import MakeServer
from enginehouse.engines.probing import Prober
from enginehouse.engines.remote_queues import RemoteQueues
from enginehouse.engines.state_file import EngineOwnership, StateFile, TakenBack
from enginehouse.interfaces.drivers import ServedModel
from enginehouse.interfaces.launch_spec import ModelFacts
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.relay.moves.drains import Drains
from enginehouse.routing.refusals import unknown_model
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.scheduling_rules import host_names
from enginehouse.telemetry.log_ring import LogRing
from enginehouse.telemetry.plugin_times import SampledCall

_SWEEP_S = 1.0


class EngineChange(NamedTuple):
    """A prepared change to the configuration of ``context``: the hosts it will have, and the change of each."""

    context: HostContext
    hosts: Mapping[str, Host]
    changes: Mapping[str, HostChange]


class ManagedEngines:
    """The hosts that have a model to launch or to load, or an engine left running by an earlier gateway.

    ``queues``: the queue of each backend that is launched, loads models itself, or has a limit; live. ``remote``: the
    queues of the last. ``ownership``: given up when another gateway takes over. Methods that take a model also take its
    alias, and raise ``ModelNotFound`` for one that the gateway neither launches nor loads.
    """

    def __init__(self, context: HostContext, queues: dict[str, HostQueue]) -> None:
        self.queues = queues
        self.remote = RemoteQueues(context, self._list_queues)
        self.ownership = EngineOwnership()
        self._context = context
        self._make_host: Callable[[str, HostContext], Host]
        self._caches: CacheFolders | None = None
        self._hosts: Mapping[str, Host] = {}
        self._listed: dict[str, Sequence[ServedModel]] = {}
        self._make_server: MakeServer | None = None
        self._tasks = BackgroundTasks()
        self._unloads: set[asyncio.Future[RequestError]] = set()

    def build(self, state_file: StateFile, prober: Prober, drains: Drains) -> None:
        """Make the hosts. Raises ``ConfigError`` or ``PluginError``. Nothing is started."""
        self._caches = caches = CacheFolders(state_file.folder)
        self._make_host = partial(
            Host,
            ports=Ports(),
            state_file=state_file,
            prober=prober,
            drains=drains,
            ownership=self.ownership,
            caches=caches,
        )
        names = [*self._hosts_of(self._context), *(record.host for record in state_file.records.values())]
        if state_file.is_lost:  # engines of an earlier gateway may run on any of them
            names += filter(self._context.has_launcher, host_names(self._context.config))
        self._hosts = {name: self._make_host(name, self._context) for name in dict.fromkeys(names)}
        self.remote.open()
        self._list_queues()

    def discover(self, backend: str, served: Sequence[ServedModel]) -> None:
        """Take the models that a backend lists, if it loads models itself."""
        settings = self._context.config.backends.get(backend)
        if settings is None or self._context.drivers[settings.driver].loading is None:
            return
        self._listed[backend] = served
        host = self._hosts.get(settings.host)
        if host is None:  # a gateway that takes over probes before it may have hosts
            return
        host.discover(backend, served)
        self._list_queues()

    async def open(self, drained: asyncio.Future[None] | None = None) -> None:
        """Take over the engines that an earlier gateway left running.

        ``drained``: when that gateway no longer uses them, if it still runs.
        """
        await asyncio.gather(*(host.open(drained) for host in self._hosts.values()))
        self._tasks.start(self._keep_sweeping())
        self._remove_caches()

    async def take_back(self, done: TakenBack) -> None:
        """Own the engines again, and undo what a gateway has ``done`` that failed to take over."""
        try:
            await asyncio.gather(*(host.left.take_back(done) for host in self._hosts.values()))
        finally:
            self.ownership.resume()

    def preload(self, models: Sequence[str] | None = None, *, makes_room: bool = True) -> None:
        """Begin to preload those of ``models``, by default of all, that are to be preloaded.

        Unless it ``makes_room``, only those for which nothing has to stop.
        """
        settings = self._context.config.models
        wanted = [m for m in (self.models if models is None else models) if m in settings and settings[m].preload]
        for host in self._hosts.values():
            replicas = [replica for model in wanted for replica in host.of_model(model)]
            host.preload(replicas if makes_room else host.fitting(replicas))

    def keep_with(self, make: MakeKeeper) -> None:
        """Have the prefix caches of launched engines kept from now on."""
        if self._caches is not None:
            self._caches.make_keeper = make

    def load_with(self, make: MakeServer) -> None:
        """Have backends that load models themselves load them from now on, in the queues of their hosts."""
        self._make_server = make
        for host in self._hosts.values():
            host.servers.load_with(make)
        self._list_queues()
        for backend, served in self._listed.items():
            self.discover(backend, served)

    def prepare(self, context: HostContext) -> EngineChange:
        """Prepare a change to the configuration of ``context``. Raises ``ConfigError``."""
        hosts = {name: host for name, host in self._hosts.items() if host.is_used}
        for name in self._hosts_of(context):
            if name not in hosts:
                hosts[name] = self._make_host(name, context)
        return EngineChange(context, hosts, {name: host.prepare(context) for name, host in hosts.items()})

    def carry_out(self, change: EngineChange, relaunched: Collection[str], within: float) -> None:
        """Apply a change, after the fleet and the upstreams have changed.

        Engines of removed models, and of those ``relaunched``, drain for at most ``within`` seconds, then stop.
        """
        before, self._context = self.models, change.context
        self._listed = {name: self._listed[name] for name in change.context.config.backends if name in self._listed}
        self._exchange_hosts(change.hosts)
        pairs = [(change.hosts[name], host_change) for name, host_change in change.changes.items()]
        retiring: dict[str, asyncio.Task[None]] = {}
        for host, host_change in pairs:
            retiring.update(host.retire_removed(host_change, within))
        for host, host_change in pairs:
            host.put_replicas(host_change, relaunched, retiring, within)
        self.remote.reconfigure(change.context)
        self._list_queues()
        for host, host_change in pairs:
            host.put_rules(host_change)
        for host, _ in pairs:
            host.reject_removed()
        self.remote.reject_removed()
        self.preload([model for model in self.models if model not in before])
        self._remove_caches()

    def reject_loads(self, error: RequestError) -> None:
        """Refuse the requests that wait for an engine which is not ready."""
        for host in self._hosts.values():
            not_ready = [name for name, state in host.states().items() if state is not ReplicaState.READY]
            host.queue.reject(not_ready, lambda _: error)

    def reject_waiting(self, error: RequestError) -> None:
        """Refuse all waiting tickets, such as those of operators' loads, and let no operator wait for an unload."""
        for host in self._hosts.values():
            host.queue.reject(host.states().keys(), lambda _: error)
        for unload in self._unloads:
            unload.set_result(error)  # whoever is cancelled meanwhile would not retrieve an exception
        self._unloads.clear()

    async def close(self, error: RequestError) -> None:
        """Refuse the waiting requests with ``error`` and stop every engine."""
        self._tasks.cancel()
        closing = [*(host.close(error) for host in self._hosts.values()), self.remote.close(error)]
        await asyncio.gather(*closing, return_exceptions=True)

    async def load(self, model: str) -> None:
        """Load the first replica of ``model`` in its turn and wait until it is ready. Raises ``RequestError``."""
        model, host = self.host_of(model)
        await load(host.queue, host.of_model(model)[0])

    def preload_some(self, model: str, replicas: int) -> None:
        """Begin to load the first ``replicas`` replicas of ``model``, each in its turn.

        Requests that wait for replicas which are not ready find their places again, as some may suit the new ones.
        """
        found = [(host, replica) for host in self._hosts.values() for replica in host.of_model(model)]
        order = list(self._context.config.models[model].backends(model))
        found.sort(key=lambda each: order.index(each[0].engines[each[1]].managed.backend))
        for host, replica in found[:replicas]:
            host.preload([replica])
        for host, replica in found:
            if len(found) > 1 and host.engines[replica].shown is not ReplicaState.READY:
                host.queue.reject([replica], ReplicaLost)

    def rest(self, model: str) -> None:
        """Put the replicas of ``model`` to sleep or stop them, as after their ``ttl``, unless they serve requests."""
        for host in self._hosts.values():
            host.rest(host.of_model(model))

    async def unload(self, models: Sequence[str] | None = None, *, force: bool = False) -> None:
        """Stop the engines of ``models``, by default of all models, and wait until they have stopped.

        Requests waiting for them are refused. Requests in flight may finish within ``server.drain_timeout``; with
        ``force`` they are cut off at once. An engine is killed after its model's ``stop_timeout``. Raises the error of
        ``reject_waiting``; the engines stop all the same.
        """
        names = self.models if models is None else [self._known(model) for model in models]
        found = [(host, host.of_model(model)) for model in names for host in self._hosts.values()]
        await self._wait_for(host.unload(replicas, force) for host, replicas in found if replicas)

    async def stop(self, backend: str) -> None:
        """Stop the engine of ``backend``, or unload what it has loaded, as ``unload`` does for a model.

        Raises ``InvalidRequest`` unless it is ``stoppable``.
        """
        found = self.stoppable(backend)
        await self._wait_for(host.unload([replica], force=False) for host, replica in found)

    def stoppable(self, backend: str) -> Sequence[tuple[Host, str]]:
        """The replicas that ``stop`` stops at ``backend``, with their hosts.

        Raises ``InvalidRequest`` if the gateway neither launches nor loads anything there.
        """
        found = [(host, replica) for host in self._hosts.values() for replica in host.of_backend(backend)]
        if not found:
            raise InvalidRequest(f"The gateway did not launch backend '{backend}'; stop it where it was started")
        return found

    async def end_hung(self, backend: str, why: str) -> bool:
        """Kill the engine of ``backend``, which hangs. Returns whether the gateway has launched it."""
        engine = self._launched_at(backend)
        if engine is not None:
            await engine.end_hung(why)
        return engine is not None

    async def processor_seconds(self, backend: str) -> float | None:
        """The processor time that the engine of ``backend`` has taken; ``None`` if unknown, or if none runs here."""
        engine = self._launched_at(backend)
        return None if engine is None or engine.run is None else await engine.run.process.processor_seconds()

    def _launched_at(self, backend: str) -> Engine | None:
        found = (host.engines[replica] for host in self._hosts.values() for replica in host.of_backend(backend))
        return next((engine for engine in found if not engine.elsewhere), None)

    async def _wait_for(self, unloads: Iterable[Coroutine[Any, Any, None]]) -> None:
        stopped = asyncio.gather(*unloads)
        rejected: asyncio.Future[RequestError] = asyncio.get_running_loop().create_future()
        self._unloads.add(rejected)
        try:
            await wait_for_first([stopped], rejected)
        finally:
            self._unloads.discard(rejected)
        if rejected.done():
            raise rejected.result()
        await stopped

    @property
    def models(self) -> Sequence[str]:
        """The models that the gateway launches, or loads on servers elsewhere."""
        launched = [name for name, model in self._context.config.models.items() if model.launches]
        hosted = [each.managed.model_name for host in self._hosts.values() for each in host.kept().values()]
        return list(dict.fromkeys([*launched, *hosted]))

    def running(self) -> Sequence[Engine]:
        """The engines that are neither stopped nor failed."""
        return [host.engines[replica] for host in self._hosts.values() for replica in host.queue.running()]

    def model_facts(self) -> Mapping[str, ModelFacts]:
        """What is known of launched models from their files, by model."""
        return {model: found for host in self._hosts.values() for model, found in host.model_facts().items()}

    def gpus(self) -> Sequence[HostGpu]:
        """The GPUs of every host, as they were some seconds ago."""
        return [gpu for host in self._hosts.values() for gpu in host.gpus.status(host.name)]

    def memory(self) -> Sequence[HostMemory]:
        """The memory of every host."""
        return [host_memory(host.facts, host.queue.running()) for host in self._hosts.values()]

    def waiting(self) -> Mapping[Ticket, Waiting]:
        """The waiting requests, by ticket."""
        queues = [*(host.queue for host in self._hosts.values()), *self.remote.queues.values()]
        return {waiting.ticket: waiting for queue in queues for waiting in queue.waiting()}

    @property
    def sampled(self) -> Iterator[SampledCall]:
        """The calls of plugins whose times can be sampled."""
        for host in self._hosts.values():
            yield from (host.queue.sampled, host.swapper.sampled)
        yield from (queue.sampled for queue in self.remote.queues.values())

    def logs(self) -> Mapping[str, LogRing]:
        """The log of each launched backend. It outlives a restart of the engine."""
        engines = (each for host in self._hosts.values() for each in host.engines.values())
        return {each.name: each.log for each in engines}

    def host_of(self, model: str) -> tuple[str, Host]:
        """The model that ``model`` names, perhaps as an alias, and the first host of it."""
        model = self._known(model)
        settings = self._context.config.models.get(model)
        if settings is not None and settings.launches:
            return model, self._hosts[settings.hosts[0]]
        return model, next(host for host in self._hosts.values() if host.of_model(model))

    def plan(self, replica: str) -> SwapPlan:
        """Plan the swap that loads ``replica`` beside the running replicas."""
        host = next((host for host in self._hosts.values() if replica in host.engines), None)
        if host is None:
            raise ModelNotFound(replica)
        return host.swapper.explain(replica, host.queue.least_recently_used())

    def _known(self, name: str) -> str:
        """The model called ``name`` that the gateway launches or loads, else the one that ``name`` is an alias of."""
        names = (name, *Aliases(self._context.config.routing.aliases).targets(name))
        known = self.models
        for model in names:
            if model in known:
                return model
        if any(model in self._context.fleet.snapshot.models for model in names):
            raise InvalidRequest(f"Model '{name}' is served by an engine that the gateway neither launches nor loads")
        error = unknown_model(name, self._context.fleet.snapshot.unlisted)
        if isinstance(error, ModelNotFound):
            error.suggest(sorted(known))
        raise error

    @staticmethod
    def _hosts_of(context: HostContext) -> Sequence[str]:
        """The host of each launched model, and of each server that loads models itself."""
        loading = [b.host for b in context.config.backends.values() if context.drivers[b.driver].loading]
        return [*hosts_of(context.config), *loading]

    def _exchange_hosts(self, hosts: Mapping[str, Host]) -> None:
        for name, host in self._hosts.items():
            if hosts.get(name) is not host:
                self._tasks.start(host.close(ShuttingDown("The host was removed from the configuration")))
        for name, host in hosts.items():
            if self._hosts.get(name) is not host:
                host.begin()
                if self._make_server is not None:
                    host.servers.load_with(self._make_server)
        self._hosts = hosts

    def _list_queues(self) -> None:
        before = {*self.queues}
        self.queues.clear()
        for host in self._hosts.values():
            backends = (each.managed.backend for each in host.kept().values())
            self.queues.update(dict.fromkeys((*backends, *host.servers.backends), host.queue))
        self.queues.update(self.remote.queues)
        if (on_facts := self._context.fleet.on_facts) is not None:
            for name in before ^ self.queues.keys():  # other processes send what waits in no queue at once
                on_facts(name)

    def _remove_caches(self) -> None:
        """Remove the caches that are kept for models that are no longer configured."""
        if self._caches is None:  # without a state folder there are none
            return
        models = self._context.config.models.items()
        names = [backend for name, model in models if model.keep_cache for backend in model.possible_backends(name)]
        self._tasks.start(run_slowly(self._caches.remove_others, names))

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            if self.ownership.held:
                for host in self._hosts.values():
                    host.release_idle()


def hosts_of(config: Config) -> Sequence[str]:
    """The hosts of each launched model."""
    return [host for model in config.models.values() if model.launches for host in model.hosts]
