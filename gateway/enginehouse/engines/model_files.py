"""What a host knows of its models from their files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launch_line import launch_spec
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.interfaces.launch_spec import LaunchSpec, ModelFacts

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
