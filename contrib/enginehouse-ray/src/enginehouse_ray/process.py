"""An engine on the cluster: one process, or one on each of several nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse_ray.cluster import ActorLost, Cluster

_PATIENCE_S = 1.0
"""The longest time of a question for news that there are not."""
_MARGIN_S = 5.0


class Part(NamedTuple):
    """One process of an engine. The actor called ``actor`` runs it on the node called ``node``."""

    actor: str
    node: str


def parts_of(line: LaunchLine) -> Sequence[Part]:
    """The processes of an engine that has its place."""
    assert line.place is not None
    handle = line.place.handle
    return [Part(actor, node) for actor, node in zip(handle["actors"], handle["nodes"], strict=True)]


class RayProcess(EngineProcess):
    """Follows the output of the first part, and the end of each. When one ends or is lost, the engine has ended.

    ``lost_after``: seconds without an answer after which a part is lost.
    """

    def __init__(self, cluster: Cluster, line: LaunchLine, output: EngineOutput, *, lost_after: float) -> None:
        assert line.place is not None
        self.address = f"http://{line.bind}:{line.port}"
        self.handle = line.place.handle
        self.parts = parts_of(line)
        self._cluster = cluster
        self._line = line
        self._output = output
        self._lost_after = lost_after
        self._stopping = False
        self._end = asyncio.ensure_future(self._run())

    async def exited(self) -> Exit:
        return await asyncio.shield(self._end)

    async def memory(self) -> int | None:
        """The bytes of all parts; ``None`` if one does not say."""
        sizes = [await self._within(self._lost_after, part, "memory") for part in self.parts]
        return None if None in sizes else sum(sizes)

    async def stop(self, timeout: float) -> None:
        """Ask every part to stop. One that cannot be reached is killed by Ray when its node is back."""
        self._stopping = True
        command, environment = self._line.stop_command, dict(self._line.environment)
        arguments = (timeout, list(command), environment)
        await asyncio.gather(*(self._within(timeout + _MARGIN_S, part, "stop", *arguments) for part in self.parts))
        await self._free()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.exited(), self._lost_after + _MARGIN_S)

    async def _run(self) -> Exit:
        follows = [asyncio.ensure_future(self._follow(part, first=part is self.parts[0])) for part in self.parts]
        try:
            done, _ = await asyncio.wait(follows, return_when=asyncio.FIRST_COMPLETED)
            how = next(iter(done)).result()
        finally:
            for each in follows:
                each.cancel()
        if not self._stopping:
            await self._end_others()
        return how

    async def _end_others(self) -> None:
        """End the parts that are left, and give the place back."""
        if len(self.parts) > 1:
            await asyncio.gather(*(self._within(_MARGIN_S, part, "stop", 0.0, [], {}) for part in self.parts))
        await self._free()

    async def _free(self) -> None:
        """Give the place back."""
        with contextlib.suppress(ActorLost, LoadFailed):
            await self._cluster.kill(self.handle["actors"])

    async def _follow(self, part: Part, *, first: bool) -> Exit:
        offset = 0
        while True:
            try:
                question = self._cluster.ask(part.actor, "news", offset, _PATIENCE_S)
                data, offset, status = await asyncio.wait_for(question, self._lost_after + _PATIENCE_S)
            except asyncio.TimeoutError:
                return self._gone(f"node {part.node} has not answered for {self._lost_after:g} s")
            except ActorLost as error:
                return self._gone(f"node {part.node}: {error}")
            if first and data:
                self._output.write(data)
            elif status is not None:
                return Exit(status=status, why="" if first else f"its process on node {part.node} ended")

    def _gone(self, why: str) -> Exit:
        """Its actor is gone: with the node, or because the engine was stopped."""
        return Exit() if self._stopping else Exit(lost=True, why=why)

    async def _within(self, seconds: float, part: Part, method: str, *arguments: Any) -> Any:
        """The answer of a part; ``None`` if it is lost, or does not answer within ``seconds``."""
        try:
            return await asyncio.wait_for(self._cluster.ask(part.actor, method, *arguments), seconds)
        except (asyncio.TimeoutError, ActorLost):
            return None
