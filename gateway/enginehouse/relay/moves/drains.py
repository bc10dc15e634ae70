"""Moves live streams away from backends and replicas that must become free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import ReplicaState
from enginehouse.relay.attempts.attempt import client_error
from enginehouse.relay.context import RelayContext
from enginehouse.relay.live.live_request import LiveRequest, each_alone

_LOOK_EVERY_S = 0.2
_VACATING_S = 1.0
"""Schedulers ask for a replica to be vacated four times a second, as long as they want that."""

_Kind = Literal["backend", "replica"]


class Drains:
    """Moves streams to ready replicas, a few at a time, while their own must become free; other requests may finish.

    A stream whose move failed is tried once more only at another destination, or if the destination was full.
    ``live``: all live requests. ``hand_on``: set where these are those of workers, who then move their own: it takes
    the name of a method here, the place, the error and the reason.
    """

    def __init__(self, context: RelayContext, live: Collection[LiveRequest]) -> None:
        self.hand_on: Callable[[str, str, RequestError | None, str], None] | None = None
        self._context = context
        self._live = live
        self._vacating: dict[str, float] = {}
        self._tasks: dict[tuple[_Kind, str], asyncio.Task[None]] = {}

    def begin(self, backend: str) -> None:
        """Move the streams of ``backend`` away for as long as it is drained and has live requests."""
        if not self._hands_on("begin", backend):
            self._begin("backend", backend)

    def vacate(self, replica: str) -> None:
        """Move the streams of ``replica`` away until it stops, if it is stopping, and otherwise for a second."""
        if not self._hands_on("vacate", replica):
            self._vacating[replica] = asyncio.get_running_loop().time() + _VACATING_S
            self._begin("replica", replica)
            if ("replica", replica) not in self._tasks:
                del self._vacating[replica]

    def retire(self, replica: str, error: RequestError) -> None:
        """``vacate``, and end WebSockets with ``error``: they have no end of their own."""
        if self._hands_on("retire", replica, error):
            return
        endless = [request for request in self._at("replica", replica) if request.endless]
        each_alone(endless, lambda request: request.cancel(error))
        self.vacate(replica)

    def cut_off(self, replica: str, why: str) -> None:
        """End the attempts that ``replica`` still serves, because its engine stops now or is lost."""
        if self._hands_on("cut_off", replica, None, why):
            return
        each_alone(self._at("replica", replica), lambda request: request.cut_off(why))

    def _hands_on(self, method: str, place: str, error: RequestError | None = None, why: str = "") -> bool:
        """Leave a call to the workers, if the live requests are theirs; whether that is so."""
        if self.hand_on is not None:
            self.hand_on(method, place, error, why)
        return self.hand_on is not None

    def close(self) -> None:
        """Move nothing more."""
        for task in [*self._tasks.values()]:
            task.cancel()

    def live(self, backend: str) -> Sequence[LiveRequest]:
        """The live requests at ``backend``, oldest first."""
        return self._at("backend", backend)

    def _at(self, kind: _Kind, name: str) -> Sequence[LiveRequest]:
        routed = [each for each in self._live if each.route is not None and getattr(each.route.chosen, kind) == name]
        return sorted(routed, key=lambda each: each.began)

    def _begin(self, kind: _Kind, name: str) -> None:
        if self._context.continuer is not None and (kind, name) not in self._tasks and self._at(kind, name):
            self._tasks[kind, name] = task = asyncio.ensure_future(self._drain(kind, name))
            task.add_done_callback(lambda _: self._drained(kind, name))

    def _drained(self, kind: _Kind, name: str) -> None:
        del self._tasks[kind, name]
        if kind == "replica":
            self._vacating.pop(name, None)

    async def _drain(self, kind: _Kind, name: str) -> None:
        tried: set[tuple[LiveRequest, str]] = set()
        room = asyncio.Semaphore(self._context.config.rescheduling.moves_at_once)
        lasts = self._is_drained if kind == "backend" else self._is_unwanted
        while lasts(name) and (left := self._at(kind, name)):
            moves = [self._move_away(each, tried, room) for each in left if each.why_not_movable is None]
            await asyncio.gather(*moves)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _move_away(
        self, request: LiveRequest, tried: set[tuple[LiveRequest, str]], room: asyncio.Semaphore
    ) -> None:
        async with room:
            destination = ""
            try:
                destination = self._destination(request) or ""
                if destination and (request, destination) not in tried:
                    await request.move(destination, cause="drain")
            except Exception as error:  # its source still serves it
                if client_error(error).retry_after is None:
                    tried.add((request, destination))

    def _destination(self, request: LiveRequest) -> str | None:
        """The backend that routing chooses, if it is ready."""
        route, requirements, context = request.route, request.requirements, self._context
        if route is None or requirements is None or request.why_not_movable is not None:  # it waited for its turn
            return None
        needs, failed = requirements.at(route.chosen.model), (route.chosen.replica,)
        try:
            found = context.router.choose(needs, context.fleet.snapshot, failed, fallbacks=False)
        except RequestError:
            return None
        chosen = found.chosen
        same = chosen.model == route.chosen.model and chosen.state is ReplicaState.READY
        return chosen.backend if same else None

    def _is_drained(self, backend: str) -> bool:
        return any(each.name == backend and each.draining for each in self._context.fleet.backends())

    def _is_unwanted(self, replica: str) -> bool:
        """Whether ``replica`` is stopping or removed, or a scheduler wants it to be free."""
        if self._vacating[replica] > asyncio.get_running_loop().time():
            return True
        models = self._context.fleet.snapshot.models.values()  # a name does not tell which part of it is the model's
        offered = next((each for row in models for each in row if each.replica == replica), None)
        return offered is None or offered.state is ReplicaState.STOPPING
