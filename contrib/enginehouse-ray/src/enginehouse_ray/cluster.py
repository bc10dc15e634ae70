"""The Ray cluster, as the gateway's process sees it: through an agent in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse.errors import LoadFailed
from enginehouse_ray.messages import Answer, Call, Node

_HEAD = struct.Struct("!I")


class ActorLost(Exception):
    """An actor, its node or the agent is gone."""


class Cluster:
    """One connection to the cluster at ``address``. Actors live in ``namespace`` under their names."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._agent: Process | None = None
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Answer]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._connected: asyncio.Future[Any] | None = None

    async def connect(self) -> None:
        """Start the agent, if it does not run, and connect. Raises ``LoadFailed``."""
        if self._agent is None or self._agent.returncode is not None:
            command = [sys.executable, "-m", "enginehouse_ray.agent", self._address, self._namespace]
            self._agent = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
            self._reading = asyncio.create_task(self._read(self._agent))
        try:
            await self._call("connect")
        except (ActorLost, LoadFailed) as error:
            remedy = "start it with `ray start`, or correct [plugins.ray] address"
            raise LoadFailed(f"No Ray cluster can be reached at {self._address}: {error} ({remedy})") from None

    async def nodes(self) -> Sequence[Node]:
        """The machines that are alive."""
        nodes: Sequence[Node] = await self._call("nodes")
        return nodes

    async def find(self, name: str) -> bool:
        """Whether there is an actor of this name."""
        return bool(await self._call("find", name))

    async def create(
        self, names: Sequence[str], owner: str, bundle: Mapping[str, float], options: Mapping[str, Any]
    ) -> None:
        """Begin to create actors, each on another node. Ray waits for what they need."""
        await self._call("create", list(names), owner, dict(bundle), dict(options))

    async def kill(self, names: Sequence[str]) -> None:
        """Kill actors, and with them the processes that they run."""
        await self._call("kill", list(names))

    async def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """The answer of a method of an actor. Raises ``ActorLost``."""
        return await self._call("ask", name, method, *arguments)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Raises ``ActorLost``, and ``LoadFailed`` for any other problem."""
        agent = self._agent
        if agent is None or agent.stdin is None or agent.returncode is not None:
            raise ActorLost("the process that connects to Ray has ended")
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        message = pickle.dumps(Call(number, method, arguments))
        try:
            agent.stdin.write(_HEAD.pack(len(message)) + message)
            answer = await future
        finally:
            self._open.pop(number, None)
        if answer.lost:
            raise ActorLost(answer.problem)
        if answer.problem:
            raise LoadFailed(f"Ray: {answer.problem}")
        return answer.value

    async def _read(self, agent: Process) -> None:
        assert agent.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = _HEAD.unpack(await agent.stdout.readexactly(_HEAD.size))
                answer: Answer = pickle.loads(await agent.stdout.readexactly(length))
                if (waits := self._open.get(answer.number)) is not None and not waits.done():
                    waits.set_result(answer)
        await agent.wait()
        for waits in self._open.values():
            if not waits.done():
                waits.set_result(Answer(0, None, lost=True, problem="the process that connects to Ray has ended"))


def room(nodes: Sequence[Node], wanted: Mapping[str, float], labels: Mapping[str, str], count: int) -> str:
    """Why ``count`` machines with these free resources and labels cannot be had now; empty if they can."""
    if why := no_room(nodes, wanted, labels, count):
        return why
    fitting = _fitting(nodes, labels)
    if sum(_covers(each.free, wanted) for each in fitting) >= count:
        return ""
    able = sum(_covers(each.total, wanted) for each in fitting)
    return f"{_what(wanted, count)} is wanted, and the {able} nodes that have so much are full: waiting for resources"


def no_room(nodes: Sequence[Node], wanted: Mapping[str, float], labels: Mapping[str, str], count: int) -> str:
    """Why the cluster does not have ``count`` such machines, free or not; empty if it has."""
    fitting = _fitting(nodes, labels)
    if len(fitting) < count:
        return f"{count} nodes with the labels {_shown(labels)} are wanted, and the cluster has {len(fitting)}"
    able = sum(_covers(each.total, wanted) for each in fitting)
    return "" if able >= count else f"{_what(wanted, count)} is wanted, and {able} nodes of the cluster have so much"


def _fitting(nodes: Sequence[Node], labels: Mapping[str, str]) -> Sequence[Node]:
    return [each for each in nodes if all(each.labels.get(key) == value for key, value in labels.items())]


def _what(wanted: Mapping[str, float], count: int) -> str:
    return f"{_shown(wanted)} on {'a node' if count == 1 else f'each of {count} nodes'}"


def _covers(have: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return all(have.get(name, 0.0) >= amount for name, amount in wanted.items())


def _shown(values: Mapping[str, Any]) -> str:
    shown = (f"{name} {value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())
    return ", ".join(shown) or "none"
