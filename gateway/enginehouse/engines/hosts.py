"""All hosts that have engines to launch."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from enginehouse.domain.errors import ModelNotFound, RequestError
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.engine_host import EngineHost, Means, RunningEngine
from enginehouse.engines.ports import Ports
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.log_ring import LogRing

_SWEEP_S = 1.0


class Hosts:
    """Every host with a model to launch, or with an engine that an earlier gateway left there.

    ``by_backend``: the queue of each launched backend; live. Methods that take a model also take an alias of one, and
    raise ``ModelNotFound`` for one that is not launched.
    """

    def __init__(self, means: Means) -> None:
        self.by_backend: dict[str, Host] = {}
        self._means = means
        self._ports = Ports()
        self._hosts: dict[str, EngineHost] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, state_file: StateFile, prober: Prober) -> None:
        """Take over what an earlier gateway left running, then begin to load what is to be preloaded."""
        models = self._means.config.models
        names = [model.host for model in models.values() if model.launches]
        names += [record.host for record in state_file.records.values()]
        for name in dict.fromkeys(names):
            self._hosts[name] = host = EngineHost(name, self._means, self._ports, state_file, prober)
            self.by_backend.update(dict.fromkeys(host.backends, host.queue))
        await asyncio.gather(*(host.engines.open() for host in self._hosts.values()))
        self._spawn(self._keep_sweeping())
        for name, model in models.items():
            if model.launches and model.preload:
                for replica in self._of(name).replicas(name):
                    self._spawn(self._of(name).preload(replica))

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

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for host in self._hosts.values():
                host.rest_idle()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
