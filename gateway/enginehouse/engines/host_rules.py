"""What one host is scheduled by, and its memory as operators see it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from enginehouse.config.schema import Config
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_context import HostContext, ManagedReplica
from enginehouse.engines.launches import Launches
from enginehouse.engines.model_files import ModelFiles
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostedReplica, HostFacts
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.scheduling_rules import SchedulingRules, hosted_replica, scheduling_rules

_log = logging.getLogger(__name__)


class HostChange(NamedTuple):
    """A prepared change of one host to the configuration of ``context``.

    ``swapper``: already prepared for ``facts``; ``None`` if the rules of scheduling do not change.
    """

    context: HostContext
    managed: Mapping[str, ManagedReplica]
    rules: SchedulingRules
    facts: HostFacts
    swapper: GuardedSwapper | None


class HostRules:
    """The basis of a scheduler's decisions: limits, the ``facts`` of the host, and its ``swapper``.

    The facts are those of the configuration and of the replicas, with the live figures of ``launches`` and ``files``.
    """

    def __init__(
        self, context: HostContext, engines: Mapping[str, Engine], launches: Launches, files: ModelFiles
    ) -> None:
        self._engines = engines
        self._launches = launches
        self._files = files
        self._rules = scheduling_rules(context.config, context.facts(launches.host))
        managed = {replica: engine.managed for replica, engine in engines.items()}
        self.facts = self._facts_by(self._rules, context.config, managed)
        self.swapper: GuardedSwapper = context.make_swapper(self.facts)

    @property
    def limits(self) -> SchedulingLimits:
        """The limits of the scheduler."""
        return self._rules.limits

    def prepare(self, context: HostContext, managed: Mapping[str, ManagedReplica]) -> HostChange:
        """Prepare a change to the configuration of ``context``, with the replicas ``managed``."""
        rules = scheduling_rules(context.config, context.facts(self._launches.host))
        facts = self._facts_by(rules, context.config, managed)
        same = rules == self._rules and facts.replicas == self.facts.replicas
        return HostChange(context, managed, rules, facts, None if same else context.make_swapper(facts))

    def put(self, change: HostChange, queue: HostQueue) -> None:
        """Give the scheduler of ``queue`` the rules of a change."""
        self._rules, self.facts = change.rules, change.facts
        if change.swapper is None:
            return
        self.swapper = change.swapper
        try:
            queue.reconfigure(self.swapper, self.facts, self.limits)
        except Exception:  # the change is in force on other hosts already
            _log.exception("The scheduler of host '%s' did not take its new configuration", self._launches.host)

    def renew(self, context: HostContext, managed: Mapping[str, ManagedReplica], queue: HostQueue) -> None:
        """Give the scheduler of ``queue`` the replicas ``managed``, as they are listed now."""
        try:
            change = self.prepare(context, managed)
        except EnginehouseError as error:
            name = self._launches.host
            _log.error("The rules of [scheduling] do not fit the models of host '%s': %s", name, error)
        else:
            self.put(change, queue)

    def _facts_by(self, rules: SchedulingRules, config: Config, managed: Mapping[str, ManagedReplica]) -> HostFacts:
        """The facts of the host, with replicas being retired: these may be evicted even if they were pinned."""
        replicas = {replica: _hosted(config, each) for replica, each in managed.items()}
        for replica, engine in self._engines.items():
            if replica not in managed:
                replicas[replica] = msgspec.structs.replace(_hosted(config, engine.managed), pin=False)
        learned = self._launches.learned
        return msgspec.structs.replace(
            rules.facts,
            memory=self._launches.gpus.total if rules.facts.memory is None else rules.facts.memory,
            replicas=replicas,
            measured=learned.measured,
            asleep=learned.asleep,
            reported=learned.reported,
            estimated=self._files.estimated,
        )


def _hosted(config: Config, managed: ManagedReplica) -> HostedReplica:
    """``managed`` as schedulers and swappers see it."""
    backend = config.backends.get(managed.backend)
    limit = managed.model.concurrency or (0 if backend is None else backend.concurrency)
    return hosted_replica(config, managed.model_name, managed.backend, managed.model, limit)


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that the engines of a host may take, and take."""

    host: str
    budget: int | None
    """``None`` without a limit."""
    used: int
    """By the engines that run, as far as their sizes are known."""
    replicas: Mapping[str, int]
    """Of each replica: declared, else measured, else estimated from its files. Unknown ones are left out."""


def host_memory(facts: HostFacts, running: Mapping[str, ReplicaState]) -> HostMemory:
    """The memory of the host with these ``facts``, whose replicas ``running`` are neither stopped nor failed."""
    declared = {name: each.memory for name, each in facts.replicas.items() if each.memory is not None}
    known = {**facts.estimated, **facts.measured, **declared}
    sizes = {name: known[name] for name in facts.replicas if name in known}
    asleep, states = facts.asleep, running.items()
    used = sum((asleep if state is ReplicaState.SLEEPING else sizes).get(name, 0) for name, state in states)
    return HostMemory(host=facts.name, budget=facts.memory, used=used, replicas=sizes)
