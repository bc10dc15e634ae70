"""All hosts that have engines to launch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from enginehouse.config.schema import Config
from enginehouse.domain.errors import ModelNotFound, RequestError, ShuttingDown
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.engine_host import EngineHost, NewRules, RunningEngine
from enginehouse.engines.means import Means
from enginehouse.engines.ports import Ports
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.log_ring import LogRing

_SWEEP_S = 1.0


class NewHosts(NamedTuple):
    """What there will be once the configuration of ``means`` is in force: every host, and the rules of each."""

    means: Means
    hosts: Mapping[str, EngineHost]
    rules: Mapping[str, NewRules]


class Hosts:
    """Every host with a model to launch, or with an engine that an earlier gateway left there.

    ``by_backend``: the queue of each launched backend; live. Methods that take a model also take an alias of one, and
    raise ``ModelNotFound`` for one that is not launched.
    """

    def __init__(self, means: Means) -> None:
        self.by_backend: dict[str, Host] = {}
        self._means = means
        self._make_host: Callable[[str, Means], EngineHost]
        self._hosts: Mapping[str, EngineHost] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, state_file: StateFile, prober: Prober) -> None:
        """Take over what an earlier gateway left running, then begin to load what is to be preloaded."""
        self._make_host = partial(EngineHost, ports=Ports(), state_file=state_file, prober=prober)
        names = [*_hosts_of(self._means.config), *(record.host for record in state_file.records.values())]
        self._hosts = {name: self._make_host(name, self._means) for name in dict.fromkeys(names)}
        self._list_backends()
        await asyncio.gather(*(host.engines.open() for host in self._hosts.values()))
        self._spawn(self._keep_sweeping())
        self._preload(self.models)

    def prepare(self, means: Means) -> NewHosts:
        """Make what is needed for the configuration of ``means``; nothing changes. Raises ``ConfigError``."""
        hosts = {name: host for name, host in self._hosts.items() if not host.empty}
        for name in _hosts_of(means.config):
            if name not in hosts:
                hosts[name] = self._make_host(name, means)
        return NewHosts(means, hosts, {name: host.prepare(means) for name, host in hosts.items()})

    def change(self, new: NewHosts, relaunched: Collection[str], within: float) -> None:
        """Be as ``new`` says from now on; the fleet and the upstreams are so already.

        Engines of models that are gone, or ``relaunched``, are stopped once they are idle or after ``within`` seconds.
        """
        before, self._means = self.models, new.means
        self._exchange_hosts(new.hosts)
        leaving = {
            backend: task
            for name, rules in new.rules.items()
            for backend, task in new.hosts[name].leave(rules, within).items()
        }
        for name, rules in new.rules.items():
            new.hosts[name].join(rules, relaunched, leaving, within)
        self._list_backends()
        for name, rules in new.rules.items():
            new.hosts[name].decide(rules)
        for name in new.rules:
            new.hosts[name].turn_away()
        self._preload([model for model in self.models if model not in before])

    async def close(self, error: RequestError) -> None:
        """Refuse whatever waits with ``error``, and stop every engine."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(host.close(error) for host in self._hosts.values()), return_exceptions=True)

    async def load(self, model: str) -> None:
        """Have the first replica of ``model`` made ready, in its turn, and wait for that. Raises ``RequestError``."""
        model = self._launched(model)
        host = self._of(model)
        await host.load(host.replicas(model)[0])

    async def unload(self, models: Sequence[str] | None = None, timeout: float | None = None) -> None:
        """Stop every engine of ``models``, of all if left out, and wait until they are gone.

        What waits for them is refused, and what they still serve is cut off. Each has ``timeout`` seconds, or else what
        its model says, until it is killed.
        """
        names = self.models if models is None else [self._launched(model) for model in models]
        await asyncio.gather(*[self._of(model).unload(model, timeout) for model in names])

    @property
    def models(self) -> Sequence[str]:
        """Every model that is launched."""
        return [name for name, model in self._means.config.models.items() if model.launches]

    def running(self) -> Sequence[RunningEngine]:
        """Every engine that is not at rest."""
        return [engine for host in self._hosts.values() for engine in host.running()]

    def waiting(self) -> Mapping[Ticket, Waiting]:
        """Every request that waits, by its ticket."""
        return {waiting.ticket: waiting for host in self._hosts.values() for waiting in host.queue.waiting()}

    def logs(self) -> Mapping[str, LogRing]:
        """What the engine of each launched backend printed; it lives on when the engine is started again."""
        return {backend: log for host in self._hosts.values() for backend, log in host.logs().items()}

    def explain_swap(self, target: str, running: Sequence[str] | None = None) -> SwapPlan:
        """What would be stopped so that the model ``target`` can run where ``running`` do, or what runs now."""
        target = self._launched(target)
        return self._of(target).explain_swap(target, running)

    def _launched(self, name: str) -> str:
        """The launched model of that name, else the one that it is an alias of."""
        target = self._means.config.routing.aliases.get(name, name)
        for model in (name, target):
            if (settings := self._means.config.models.get(model)) is not None and settings.launches:
                return model
        raise ModelNotFound(name)

    def _of(self, model: str) -> EngineHost:
        return self._hosts[self._means.config.models[model].host]

    def _exchange_hosts(self, hosts: Mapping[str, EngineHost]) -> None:
        for name, host in self._hosts.items():
            if hosts.get(name) is not host:
                self._spawn(host.close(ShuttingDown("The host was taken out of the configuration")))
        for name, host in hosts.items():
            if self._hosts.get(name) is not host:
                host.engines.begin()
        self._hosts = hosts

    def _list_backends(self) -> None:
        self.by_backend.clear()
        for host in self._hosts.values():
            self.by_backend.update(dict.fromkeys(host.backends, host.queue))

    def _preload(self, models: Sequence[str]) -> None:
        for model in models:
            if self._means.config.models[model].preload:
                for replica in self._of(model).replicas(model):
                    self._spawn(self._of(model).preload(replica))

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for host in self._hosts.values():
                host.rest_idle()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _hosts_of(config: Config) -> Sequence[str]:
    """The hosts that have something to launch."""
    return [model.host for model in config.models.values() if model.launches]
