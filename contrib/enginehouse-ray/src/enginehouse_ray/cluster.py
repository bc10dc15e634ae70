"""The Ray cluster, without blocking the event loop: every call of Ray that may wait runs in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import ray
from ray import cloudpickle

from enginehouse import LoadFailed
from enginehouse_ray import engine_actor
from enginehouse_ray.engine_actor import EngineActor

T = TypeVar("T")

_NODE_ID = "ray.io/node-id"
_INTERNAL = "node:"


class Node(NamedTuple):
    """A machine of the cluster. ``free``: its resources that are not taken now; ``total``: all of them."""

    id: str
    address: str
    name: str
    labels: Mapping[str, str]
    total: Mapping[str, float]
    free: Mapping[str, float]


class Cluster:
    """One connection to the cluster at ``address``. Actors live in ``namespace`` under their names."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="ray")

    async def connect(self) -> None:
        """Connect. Raises ``LoadFailed``."""
        cloudpickle.register_pickle_by_value(engine_actor)
        try:
            await self.call(
                ray.init,
                address=self._address,
                namespace=self._namespace,
                log_to_driver=False,
                configure_logging=False,
                ignore_reinit_error=True,
            )
        except Exception as error:
            remedy = "start it with `ray start`, or correct [plugins.ray] address"
            raise LoadFailed(f"No Ray cluster can be reached at {self._address}: {error} ({remedy})") from error

    async def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function of Ray in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments, **named))

    async def nodes(self) -> Sequence[Node]:
        """The machines that are alive."""
        return await self.call(_nodes)

    async def find(self, name: str) -> Any:
        """The actor called ``name``; ``None`` if there is none."""
        try:
            return await self.call(ray.get_actor, name, self._namespace)
        except ValueError:
            return None

    async def kill(self, name: str) -> None:
        """Kill the actor called ``name``, and with it the process that it runs."""
        actor = await self.find(name)
        if actor is not None:
            await self.call(ray.kill, actor)

    async def create(self, name: str, owner: str, **options: Any) -> Any:
        """Begin to create an actor, which lives until it is killed. Ray waits for its resources."""
        remote = ray.remote(EngineActor).options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=16,
            **options,
        )
        return await self.call(remote.remote, owner)


async def answer(call: Any) -> Any:
    """The result of a method of an actor. Raises Ray's errors of a lost one."""
    return await asyncio.wrap_future(call.future())


def _nodes() -> Sequence[Node]:
    free = _free_by_node()
    return [
        Node(
            id=each["NodeID"],
            address=each["NodeManagerAddress"],
            name=each["NodeName"] or each["NodeManagerAddress"],
            labels=each.get("Labels") or {},
            total=each["Resources"],
            free=free.get(each["NodeID"], {}),
        )
        for each in ray.nodes()
        if each["Alive"]
    ]


def _free_by_node() -> Mapping[str, Mapping[str, float]]:
    """Ray has no public function for it, only ``ray.available_resources()`` of the whole cluster."""
    from ray._private.state import available_resources_per_node

    found: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    return found


def room(nodes: Sequence[Node], wanted: Mapping[str, float], labels: Mapping[str, str], count: int) -> str:
    """Why ``count`` machines with these free resources and labels cannot be had now; empty if they can."""
    fitting = [each for each in nodes if all(each.labels.get(key) == value for key, value in labels.items())]
    if len(fitting) < count:
        return f"{count} nodes with the labels {_shown(labels)} are wanted, and the cluster has {len(fitting)}"
    if sum(_covers(each.free, wanted) for each in fitting) >= count:
        return ""
    able = sum(_covers(each.total, wanted) for each in fitting)
    what = f"{_shown(wanted)} on {'a node' if count == 1 else f'each of {count} nodes'}"
    if able < count:
        return f"{what} is wanted, and {able} nodes of the cluster have so much"
    return f"{what} is wanted, and the {able} nodes that have so much are full: waiting for resources"


def _covers(have: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return all(have.get(name, 0.0) >= amount for name, amount in wanted.items())


def _shown(values: Mapping[str, Any]) -> str:
    shown = (f"{name} {value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())
    return ", ".join(shown) or "none"
