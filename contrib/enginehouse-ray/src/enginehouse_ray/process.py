"""An engine on the cluster: one process, or one on each of several nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ray.exceptions import RayError

from enginehouse import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse_ray.cluster import answer

_PATIENCE_S = 1.0
"""The longest time of a question for news that there are not."""
_MARGIN_S = 5.0


class Part:
    """One process of an engine. ``actor`` runs it on the node called ``node``."""

    def __init__(self, actor: Any, node: str) -> None:
        self.actor = actor
        self.node = node


class RayProcess(EngineProcess):
    """Follows the output of the first part, and the end of each. When one ends or is lost, the engine has ended.

    ``lost_after``: seconds without an answer after which a part is lost. ``free`` gives the place back.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        line: LaunchLine,
        handle: Mapping[str, Any],
        output: EngineOutput,
        *,
        lost_after: float,
        free: Callable[[], Awaitable[None]],
    ) -> None:
        self.address = f"http://{line.bind}:{line.port}"
        self.handle = handle
        self._parts = parts
        self._line = line
        self._output = output
        self._lost_after = lost_after
        self._free = free
        self._stopping = False
        self._end = asyncio.ensure_future(self._run())

    async def exited(self) -> Exit:
        return await asyncio.shield(self._end)

    async def memory(self) -> int | None:
        """The bytes of all parts; ``None`` if one does not say."""
        sizes = [await self._asked(part.actor.memory.remote()) for part in self._parts]
        return None if None in sizes else sum(sizes)

    async def stop(self, timeout: float) -> None:
        """Ask every part to stop. One that cannot be reached is killed by Ray when its node is back."""
        self._stopping = True
        command, environment = self._line.stop_command, dict(self._line.environment)
        calls = [part.actor.stop.remote(timeout, list(command), environment) for part in self._parts]
        await asyncio.gather(*(self._within(timeout + _MARGIN_S, call) for call in calls))
        await self._free()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.exited(), self._lost_after + _MARGIN_S)

    async def _run(self) -> Exit:
        follows = [asyncio.ensure_future(self._follow(part, first=part is self._parts[0])) for part in self._parts]
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
        if len(self._parts) > 1:
            calls = [part.actor.stop.remote(0.0, [], {}) for part in self._parts]
            await asyncio.gather(*(self._within(_MARGIN_S, call) for call in calls))
        await self._free()

    async def _follow(self, part: Part, *, first: bool) -> Exit:
        offset = 0
        while True:
            try:
                question = answer(part.actor.news.remote(offset, _PATIENCE_S))
                data, offset, status = await asyncio.wait_for(question, self._lost_after + _PATIENCE_S)
            except asyncio.TimeoutError:
                return self._gone(f"node {part.node} has not answered for {self._lost_after:g} s")
            except RayError as error:
                return self._gone(f"node {part.node}: {_first_line(error)}")
            if first and data:
                self._output.write(data)
            elif status is not None:
                return Exit(status=status, why="" if first else f"its process on node {part.node} ended")

    def _gone(self, why: str) -> Exit:
        """Its actor is gone: with the node, or because the engine was stopped."""
        return Exit() if self._stopping else Exit(lost=True, why=why)

    async def _asked(self, call: Any) -> Any:
        try:
            return await asyncio.wait_for(answer(call), self._lost_after)
        except (asyncio.TimeoutError, RayError):
            return None

    @staticmethod
    async def _within(seconds: float, call: Any) -> None:
        with contextlib.suppress(asyncio.TimeoutError, RayError):
            await asyncio.wait_for(answer(call), seconds)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
