"""One host of a virtual gateway. Its engines are only states and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.virtual.virtual_engines import VirtualBackend, VirtualEngines
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.domain.ticket import SwapDone
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.host_queues import host_queue
from enginehouse.engines.idle import IdleKeeper
from enginehouse.engines.launch_line import launch_spec
from enginehouse.engines.load_request import load
from enginehouse.engines.status_publisher import StatusPublisher
from enginehouse.scheduling.collaborators import EngineControl, QueueListener
from enginehouse.scheduling.facts import scheduling_rules


class VirtualHost(EngineControl, QueueListener):
    """The queue of one host, for engines that the caller simulates. ``swaps`` counts the successful ones."""

    def __init__(self, name: str, context: HostContext, publisher: StatusPublisher, engines: VirtualEngines) -> None:
        self.swaps = 0
        self._context = context
        self._managed = context.managed(name)
        self._publisher = publisher
        self._engines = engines
        self._states = dict.fromkeys(self._managed, ReplicaState.STOPPED)
        self._reported: dict[str, int] = {}
        self._tasks = BackgroundTasks()
        self._idle = IdleKeeper({replica: managed.model.ttl for replica, managed in self._managed.items()})
        rules = scheduling_rules(context.config, name)
        facts = msgspec.structs.replace(rules.facts, reported=self._reported)
        self.queue = host_queue(name, context, self, self, context.make_swapper(facts), facts, rules.limits)

    @property
    def backends(self) -> Mapping[str, VirtualBackend]:
        """Its engines, by the name of their replicas."""
        return {
            replica: VirtualBackend(
                name=managed.backend,
                driver=self._context.config.models[managed.model_name].driver,
                models=(managed.model_name,),
                spec=launch_spec(managed.model_name, managed.model, managed.driver.launch),
            )
            for replica, managed in self._managed.items()
        }

    async def preload(self) -> None:
        """Load the models to preload."""
        for replica, managed in self._managed.items():
            if managed.model.preload:
                await load(self.queue, replica)

    def release_idle(self) -> None:
        """Stop the replicas that have been idle for their ``ttl``."""
        pending = self._context.fleet.load
        in_flight = {replica: pending(managed.backend).pending for replica, managed in self._managed.items()}
        for replica in self._idle.due(self._states, in_flight, self.queue.now()):
            self._note(replica, ReplicaState.STOPPING)
            self._tasks.start(self._put_to_rest(replica))

    # --- as the engines of a queue

    def states(self) -> Mapping[str, ReplicaState]:
        return self._states

    async def evict(self, replica: str) -> None:
        await self.stop(replica, None)

    async def wait_out_pause(self, replica: str, evict: Sequence[str]) -> None:
        pass

    async def start(self, replica: str) -> None:
        if self._states[replica] is ReplicaState.READY:
            return
        backend = self.backends[replica]
        self._note(replica, ReplicaState.STARTING)
        try:
            await self._engines.load(backend)
        except BaseException:
            self._note(replica, ReplicaState.STOPPED)
            raise
        _, limit = self._engines.probe(backend)
        if limit:
            self._reported[replica] = limit
        self._note(replica, ReplicaState.READY)

    async def stop(self, replica: str, timeout: float | None) -> None:
        if self._states[replica] not in AT_REST:
            self._note(replica, ReplicaState.STOPPING)
            await self._engines.stop(self.backends[replica])
            self._note(replica, ReplicaState.STOPPED)

    # --- as the listener of a queue

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self._publisher.swap_started(target, evict)

    def swap_done(self, done: SwapDone) -> None:
        self.swaps += done.error is None
        self._publisher.swap_done(done)

    def served(self, replica: str) -> None:
        self._idle.used(replica, self.queue.now())

    def queue_changed(self) -> None:
        self._publisher.queue_changed()

    def vacate(self, replica: str) -> None:
        pass

    # --- inside

    async def _put_to_rest(self, replica: str) -> None:
        await self._engines.stop(self.backends[replica])
        self._note(replica, ReplicaState.STOPPED)
        self.queue.exited(replica)

    def _note(self, replica: str, state: ReplicaState) -> None:
        self._states[replica] = state
        if state is ReplicaState.READY:
            self._context.fleet.set_state(replica, state)
            self._context.fleet.succeeded(self._managed[replica].backend)
        else:
            self._publisher.show(replica, state)
        self._publisher.state(replica, state)
