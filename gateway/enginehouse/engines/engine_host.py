"""One host: its engines, its scheduler, and what the rest of the house is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from enginehouse.config.managed import driver_of
from enginehouse.domain.errors import ConfigError, ModelNotFound, ReplicaGone, RequestError
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.domain.ticket import SwapDone
from enginehouse.engines.herald import Herald
from enginehouse.engines.host_engines import HostEngines, Managed
from enginehouse.engines.idle import IdleKeeper
from enginehouse.engines.means import Means
from enginehouse.engines.ports import Ports
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile
from enginehouse.engines.wish import load
from enginehouse.interfaces.swappers import HostFacts, Swapper, SwapPlan
from enginehouse.scheduling.explain import explain_swap
from enginehouse.scheduling.facts import HostRules, host_rules
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)


class RunningEngine(msgspec.Struct, frozen=True):
    """A launched engine, as ``/running`` tells of it."""

    model: str
    backend: str
    state: ReplicaState


class NewRules(NamedTuple):
    """What a host will work with once the configuration of ``means`` is in force.

    ``swapper``: prepared for ``rules``, with ``facts`` in them; ``None`` if they are what they were.
    """

    means: Means
    managed: Mapping[str, Managed]
    rules: HostRules
    facts: HostFacts
    swapper: Swapper | None


class EngineHost:
    """Brings the engines of one host and its scheduler together, and tells the fleet and observers of their states.

    The configuration changes in five steps: ``prepare``, which may fail, then, for every host before the next step,
    ``leave``, ``join``, ``decide`` and ``turn_away``.
    """

    def __init__(self, name: str, means: Means, ports: Ports, state_file: StateFile, prober: Prober) -> None:
        self.name = name
        self._means = means
        self._herald = Herald(means, prober)
        self._managed = means.managed(name)
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._idle = IdleKeeper({replica: managed.model.ttl for replica, managed in self._managed.items()})
        self.engines = HostEngines(
            name,
            self._managed,
            launcher=means.make_launcher(means.launcher(name), name, state_file.logs),
            ports=ports,
            connect=self._herald.client,
            state_file=state_file,
            on_state=self._note_state,
            on_gone=self._note_gone,
        )
        self._rules = host_rules(means.config, name)
        self._facts = self._facts_for(self._rules)
        self._swapper = means.make_swapper(self._facts)
        scheduler = means.make_scheduler()
        self.queue = Host(name, scheduler, self.engines, self)
        scheduler.prepare(self.queue, self._swapper, self._facts, self._rules.limits)

    @property
    def empty(self) -> bool:
        """Whether nothing is launched here, and nothing is on its way out."""
        return not self._managed

    @property
    def backends(self) -> Sequence[str]:
        """The backends that are launched here."""
        return [managed.backend for managed in self._staying().values()]

    def running(self) -> Sequence[RunningEngine]:
        """Every engine that is not at rest."""
        return [
            RunningEngine(self._managed[replica].model_name, self._managed[replica].backend, state)
            for replica, state in self.queue.running().items()
        ]

    def logs(self) -> Mapping[str, LogRing]:
        """What each backend's engine printed."""
        return {supervisor.name: supervisor.log for supervisor in self.engines.supervisors.values()}

    def explain_swap(self, target: str, running: Sequence[str] | None) -> SwapPlan:
        """What would be stopped so that the model ``target`` can run where ``running`` do, or what runs now."""
        now = list(dict.fromkeys(each.model for each in self.running())) if running is None else running
        return explain_swap(self._swapper, self._facts, target, now)

    def replicas(self, model: str) -> Sequence[str]:
        """The replicas of ``model`` here, the first one first."""
        return [replica for replica, managed in self._staying().items() if managed.model_name == model]

    async def load(self, replica: str) -> None:
        """Have a replica made ready, in its turn, and wait for that. Raises ``RequestError`` when it does not work."""
        await load(self.queue, replica)

    async def preload(self, replica: str) -> None:
        """``load``, for which nobody waits."""
        try:
            await self.load(replica)
        except RequestError as error:
            _log.warning("%s could not be preloaded: %s", replica, error)

    async def unload(self, model: str, timeout: float | None) -> None:
        """Stop the replicas of a model, within ``timeout`` seconds or else its own limit, and wait for that."""
        replicas = self.replicas(model)
        limit = self._managed[replicas[0]].model.stop_timeout if timeout is None else timeout
        await self.queue.unload(replicas, limit)

    def rest_idle(self) -> None:
        """Let go of what had nothing to do for its ``ttl``."""
        load = self._means.fleet.load
        in_flight = {replica: load(managed.backend).pending for replica, managed in self._staying().items()}
        for replica in self._idle.due(self.engines.states(), in_flight, self.queue.now()):
            self.engines.rest(replica)

    async def close(self, error: RequestError) -> None:
        """Refuse whatever waits with ``error``, and stop every engine."""
        await self.queue.close(error)
        await self.engines.close()

    # --- when the configuration changes

    def prepare(self, means: Means) -> NewRules:
        """Make what this host needs for the configuration of ``means``; nothing changes. Raises ``ConfigError``."""
        if means.launcher(self.name) != self._means.launcher(self.name):
            raise ConfigError(
                "engines of its earlier launcher are still on their way out",
                key=f"hosts.{self.name}.launcher",
                remedy="try again when they are gone",
            )
        managed, rules = means.managed(self.name), host_rules(means.config, self.name)
        facts = self._facts_for(rules, leaving=self._managed.keys() - managed.keys())
        same = rules == self._rules and facts.replicas == self._facts.replicas
        return NewRules(means, managed, rules, facts, None if same else means.make_swapper(facts))

    def leave(self, new: NewRules, within: float) -> Mapping[str, asyncio.Task[None]]:
        """Let go of the replicas that are not here any more: once they are idle, or after ``within`` seconds.

        Returns, by backend, what is done when the engine is gone.
        """
        for replica, managed in self._staying().items():
            if replica not in new.managed:
                self._herald.leave(managed)
                self.engines.retire(replica)
                self._leaving[replica] = asyncio.ensure_future(self._let_go(replica, within))
        return {self._managed[replica].backend: task for replica, task in self._leaving.items()}

    def join(
        self, new: NewRules, relaunched: Collection[str], leaving: Mapping[str, asyncio.Task[None]], within: float
    ) -> None:
        """Take in what is here from now on; engines of models that are ``relaunched`` go as in ``leave``.

        ``leaving``: what ``leave`` of all hosts returned.
        """
        before, known, self._means = self._means, self._managed, new.means
        self._herald.means = new.means
        came_back = [replica for replica in new.managed if self._leaving.pop(replica, None) is not None]
        self._managed = {**new.managed, **{replica: known[replica] for replica in self._leaving}}
        self._idle.reconfigure({replica: managed.model.ttl for replica, managed in new.managed.items()})
        for replica, managed in new.managed.items():
            relaunch = replica in came_back or (replica in known and managed.model_name in relaunched)
            self.engines.put(replica, managed, relaunch=relaunch, after=leaving.get(managed.backend))
            if relaunch:
                self._retire(replica, within)
            elif before.config.checks != new.means.config.checks or not _probed_alike(known.get(replica), managed):
                self._probe_anew(replica)

    def decide(self, new: NewRules) -> None:
        """Have the scheduler go on by the new rules."""
        self._rules, self._facts = new.rules, new.facts
        if new.swapper is not None:
            self._swapper = new.swapper
            try:
                self.queue.reconfigure(new.swapper, new.facts, new.rules.limits)
            except Exception:
                _log.exception("The scheduler of host '%s' did not take its new configuration", self.name)

    def turn_away(self) -> None:
        """Send away who waits for what is not here any more; it may go to another host."""
        self.queue.turn_away(self._leaving, self._gone_error)

    def _retire(self, replica: str, within: float) -> None:
        if self.engines.states()[replica] not in AT_REST:
            self.engines.retire(replica)
            self.queue.retire(replica, within)
        self._herald.show(replica, self.engines.states()[replica])

    def _probe_anew(self, replica: str) -> None:
        if self.engines.states()[replica] is ReplicaState.READY:
            self._herald.probe(self._managed[replica])

    async def _let_go(self, replica: str, within: float) -> None:
        await self.queue.retire(replica, within)
        if self._leaving.get(replica) is asyncio.current_task():  # else it came back meanwhile
            del self._leaving[replica], self._managed[replica]
            self.engines.forget(replica)
            self._herald.forget(replica)
            self._facts = self._facts_for(self._rules, self._leaving)

    def _facts_for(self, rules: HostRules, leaving: Collection[str] = ()) -> HostFacts:
        """The host with what is on its way out, which any other replica may push out."""
        out = {
            replica: msgspec.structs.replace(self._facts.replicas[replica], pin=False)
            for replica in self._managed
            if replica in leaving
        }
        replicas = {**rules.facts.replicas, **out}
        return msgspec.structs.replace(rules.facts, replicas=replicas, measured=self.engines.measured)

    def _staying(self) -> Mapping[str, Managed]:
        return {replica: managed for replica, managed in self._managed.items() if replica not in self._leaving}

    def _gone_error(self, replica: str) -> RequestError:
        model = self._managed[replica].model_name
        if model not in self._means.config.models:
            return ModelNotFound(model)
        return ReplicaGone(replica)

    # --- from the scheduler's run loop

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """Tell of a swap."""
        self._herald.swap_started(target, evict)

    def swap_done(self, done: SwapDone) -> None:
        """Tell of its end."""
        self._herald.swap_done(done)

    def served(self, replica: str) -> None:
        """A request has ended: the replica is not idle."""
        self._idle.used(replica, self.queue.now())

    def queue_changed(self) -> None:
        """Tell that who waits may have changed."""
        self._herald.queue_changed()

    # --- from the engines

    def _note_state(self, replica: str, state: ReplicaState) -> None:
        managed, supervisor = self._managed[replica], self.engines.supervisors[replica]
        if replica not in self._leaving:
            if state is ReplicaState.READY:
                self._herald.ready(replica, managed, supervisor)
            else:
                self._herald.not_ready(replica, managed, state, supervisor.problem)
        self._herald.state(replica, state)

    def _note_gone(self, replica: str) -> None:
        self.queue.went_away(replica)


def _probed_alike(one: Managed | None, other: Managed) -> bool:
    """Whether probes of two states of a replica ask the same of its engine."""
    if one is None:
        return True
    return (driver_of(one.model), one.model.health_path) == (driver_of(other.model), other.model.health_path)
