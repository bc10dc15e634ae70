"""A process beside the gateway that speaks with Ray: ``python -m enginehouse_ray.agent ADDRESS NAMESPACE``.

Ray connects in seconds during which no other Python code of its process runs, and installs handlers of signals; so the
gateway's own process has nothing of it. The agent reads calls from its standard input and writes their answers to its
standard output, each as one message of a pickle after its length. It ends with the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.placement_group import get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from enginehouse_ray import engine_actor
from enginehouse_ray.engine_actor import EngineActor
from enginehouse_ray.messages import Answer, Call, Node

_HEAD = struct.Struct("!I")


class Agent:
    """Carries out the calls of one gateway: ``Call.method`` names one of its methods. Plain ones run in threads."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._actors: dict[str, Any] = {}

    async def connect(self) -> None:
        """Connect to the cluster, if that has not been done. Ray wants the main thread, where all else waits."""
        if ray.is_initialized():
            return
        cloudpickle.register_pickle_by_value(engine_actor)
        ray.init(
            address=self._address,
            namespace=self._namespace,
            log_to_driver=False,
            configure_logging=False,
        )

    def nodes(self) -> Sequence[Node]:
        """The machines that are alive. Ray has no public function for the free resources of each."""
        from ray._private.state import available_resources_per_node

        free: Mapping[str, Mapping[str, float]] = available_resources_per_node()
        return [
            Node(
                id=each["NodeID"],
                address=each["NodeManagerAddress"],
                name=each["NodeName"] or each["NodeManagerAddress"],
                labels=dict(each.get("Labels") or {}),
                total=dict(each["Resources"]),
                free=dict(free.get(each["NodeID"], {})),
            )
            for each in ray.nodes()
            if each["Alive"]
        ]

    def find(self, name: str) -> bool:
        """Whether there is an actor of this name."""
        try:
            self._actors[name] = ray.get_actor(name, self._namespace)
        except ValueError:
            self._actors.pop(name, None)
            return False
        return True

    def create(self, names: Sequence[str], owner: str, bundle: Mapping[str, float], options: Mapping[str, Any]) -> None:
        """Begin to create actors, which live until they are killed: one, or one on each node of a placement group."""
        labels = options.get("label_selector")
        strategies: list[dict[str, Any]] = [{}]
        if len(names) > 1:
            selectors = {"bundle_label_selector": [labels] * len(names)} if labels else {}
            bundles = [dict(bundle) for _ in names]
            group = placement_group(bundles, strategy="STRICT_SPREAD", lifetime="detached", name=names[0], **selectors)
            strategies = [
                {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)}
                for rank in range(len(names))
            ]
        for name, strategy in zip(names, strategies, strict=True):
            self._create(name, owner, {**options, **strategy})

    def _create(self, name: str, owner: str, options: Mapping[str, Any]) -> None:
        chosen = {key: value for key, value in options.items() if value}
        if "scheduling_strategy" in chosen:
            chosen.pop("label_selector", None)
        remote = ray.remote(EngineActor).options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=16,
            num_cpus=options["num_cpus"],
            **{key: value for key, value in chosen.items() if key != "num_cpus"},
        )
        self._actors[name] = remote.remote(owner)

    def kill(self, names: Sequence[str]) -> None:
        """Kill actors, and with them the processes that they run; remove the placement group of the first one."""
        for name in names:
            if self.find(name):
                ray.kill(self._actors.pop(name))
        with contextlib.suppress(ValueError):
            remove_placement_group(get_placement_group(names[0]))

    async def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """The answer of a method of an actor. Raises ``RayError`` if it is lost, ``ValueError`` if there is none."""
        if name not in self._actors and not await asyncio.to_thread(self.find, name):
            raise ValueError(f"there is no actor {name}")
        call = getattr(self._actors[name], method).remote(*arguments)
        return await asyncio.wrap_future(call.future())


async def serve(agent: Agent) -> None:
    """Answer calls until the gateway closes the pipe."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    write = _writer(os.dup(1))
    os.dup2(2, 1)  # whatever else is printed must not get between the answers
    running: set[asyncio.Task[None]] = set()
    while True:
        try:
            (length,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
            call: Call = pickle.loads(await reader.readexactly(length))
        except asyncio.IncompleteReadError:
            return
        task = asyncio.create_task(_answer(agent, call, write))
        running.add(task)
        task.add_done_callback(running.discard)


def _writer(pipe: int) -> Callable[[Answer], None]:
    def write(answer: Answer) -> None:
        message = pickle.dumps(answer)
        rest = memoryview(_HEAD.pack(len(message)) + message)
        while rest:
            rest = rest[os.write(pipe, rest) :]

    return write


async def _answer(agent: Agent, call: Call, write: Callable[[Answer], None]) -> None:
    method = getattr(agent, call.method)
    try:
        if asyncio.iscoroutinefunction(method):
            value = await method(*call.arguments)
        else:
            value = await asyncio.to_thread(method, *call.arguments)
    except (RayError, ValueError) as error:
        write(Answer(call.number, None, lost=True, problem=_first_line(error)))
    except Exception as error:
        write(Answer(call.number, None, lost=False, problem=f"{type(error).__name__}: {_first_line(error)}"))
    else:
        write(Answer(call.number, value))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


if __name__ == "__main__":
    asyncio.run(serve(Agent(*sys.argv[1:])))
