"""Moves the live streams of drained backends away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import ReplicaState
from enginehouse.relay.context import RelayContext
from enginehouse.relay.continuation.move import MovedStream
from enginehouse.relay.live_request import LiveRequest

_LOOK_EVERY_S = 0.2

MoveStream = Callable[[LiveRequest, str], Awaitable[MovedStream]]
"""Continues a live stream at a backend. Raises ``RequestError`` if it stays."""


class Drains:
    """While a backend is drained, its streams are moved to ready replicas, a few at a time; the others may finish.

    A stream whose move failed is tried once more only at another destination.
    """

    def __init__(self, context: RelayContext, move: MoveStream) -> None:
        self._context = context
        self._move = move
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, backend: str) -> None:
        """Move the streams of ``backend`` away for as long as it is drained and has live requests."""
        if backend not in self._tasks:
            task = asyncio.ensure_future(self._drain(backend))
            self._tasks[backend] = task
            task.add_done_callback(lambda _: self._tasks.pop(backend, None))

    def close(self) -> None:
        """Move nothing more."""
        for task in [*self._tasks.values()]:
            task.cancel()

    def live(self, backend: str) -> Sequence[LiveRequest]:
        """The live requests at ``backend``, oldest first."""
        found = [each for each in self._context.live if each.route is not None and each.route.chosen.backend == backend]
        return sorted(found, key=lambda each: each.began)

    async def _drain(self, backend: str) -> None:
        tried: set[tuple[LiveRequest, str]] = set()
        room = asyncio.Semaphore(self._context.continuation.moves_at_once)
        while self._is_drained(backend) and (live := self.live(backend)):
            moves = [self._move_away(each, tried, room) for each in live if each.stays is None]
            await asyncio.gather(*moves)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _move_away(
        self, request: LiveRequest, tried: set[tuple[LiveRequest, str]], room: asyncio.Semaphore
    ) -> None:
        async with room:
            destination = self._destination(request)
            if destination is None or (request, destination) in tried:
                return
            tried.add((request, destination))
            try:
                await self._move(request, destination)
            except RequestError:
                return  # it goes on where it is

    def _destination(self, request: LiveRequest) -> str | None:
        """The backend that routing chooses, if it is ready."""
        route, requirements, context = request.route, request.requirements, self._context
        if route is None or requirements is None or request.stays is not None:
            return None
        needs = msgspec.structs.replace(requirements, model=route.chosen.model)
        try:
            found = context.router.route(needs, context.fleet.snapshot, (route.chosen.replica,), fallbacks=False)
        except RequestError:
            return None
        chosen = found.chosen
        same = chosen.model == route.chosen.model and chosen.state is ReplicaState.READY
        return chosen.backend if same else None

    def _is_drained(self, backend: str) -> bool:
        return any(each.name == backend and each.draining for each in self._context.fleet.backends())
