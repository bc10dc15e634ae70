"""Makes the queue of a host."""

from __future__ import annotations

from enginehouse.engines.host_context import HostContext
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.scheduling.collaborators import EngineControl, QueueListener
from enginehouse.scheduling.host_queue import HostQueue


def host_queue(
    name: str,
    context: HostContext,
    engines: EngineControl,
    listener: QueueListener,
    swapper: Swapper,
    facts: HostFacts,
    limits: SchedulingLimits,
) -> HostQueue:
    """A queue with the configured scheduler, prepared. Raises ``PluginError``."""
    queue = HostQueue(name, context.make_scheduler(), engines, listener, context.scheduler)
    queue.prepare(swapper, facts, limits)
    return queue
