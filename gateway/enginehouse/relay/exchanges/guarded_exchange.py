"""A request that guards decide about before it is routed."""

from __future__ import annotations

import asyncio

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.interfaces.guards import GuardRequest
from enginehouse.relay.door import Caller, OpenExchange
from enginehouse.relay.guarding.guarding_door import GuardingDoor
from enginehouse.relay.guarding.guards import Guards
from enginehouse.relay.heads.headers import NOT_TO_ENGINE
from enginehouse.relay.jobs.job import Job
from enginehouse.routing.body.one_model import model_named


class GuardedExchange(OpenExchange):
    """Begins the ``inner`` exchange when all guards have let the request go on.

    No other process continues its stream, because guards watch the answer in this one only.

    ``job``: its job. ``door``: watches the answer, if any guard does.
    """

    def __init__(self, guards: Guards, inner: OpenExchange, job: Job, door: GuardingDoor | None) -> None:
        self._guards = guards
        self._inner = inner
        self._job = job
        self._door = door
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        if not self._ended:
            self._task = asyncio.create_task(self._decide(body, caller))

    async def _decide(self, body: bytes, caller: Caller | None) -> None:
        name = caller.name if caller is not None else None
        request = GuardRequest(self._job.path, model_named(body) or "", _headers(self._job.headers), body)
        try:
            changed = await self._guards.before(request, name)
        except RequestError as error:
            if not self._ended:
                self._ended = True
                self._job.caller = caller  # the record of a refused request names it
                self._inner.cancel(error)
            return
        if self._ended:
            return
        if self._door is not None:
            self._door.request = msgspec.structs.replace(request, body=changed)
            self._door.caller = name
        self._inner.begin(changed, caller)

    def cancel(self, error: RequestError | None = None) -> None:
        self._end()
        self._inner.cancel(error)

    def client_disconnected(self) -> None:
        self._end()
        self._inner.client_disconnected()

    def withdraw(self) -> bool:
        withdrawn = self._inner.withdraw()
        if withdrawn:
            self._end()
        return withdrawn

    def pause(self) -> None:
        self._inner.pause()

    def resume(self) -> None:
        self._inner.resume()

    def _end(self) -> None:
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        if self._door is not None:
            self._door.release()


def _headers(headers: Headers) -> dict[str, str]:
    passing = ((name.lower(), value) for name, value in headers)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in passing if name not in NOT_TO_ENGINE}
