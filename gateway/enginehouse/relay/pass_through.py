"""A request for one model's engine that goes there as it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import msgspec

from enginehouse.domain.errors import Forbidden
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.snapshot import Snapshot
from enginehouse.relay.attempt import Attempt
from enginehouse.relay.door import Caller, Door
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.owner import Owner
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.router import Router

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class Call(NamedTuple):
    """What is asked of the engine of ``model``: ``target`` is a path and perhaps a query, as they stand on the wire."""

    model: str
    method: str
    target: str

    def needs(self) -> Requirements:
        """What it requires; nobody looks into its body, so that is no more than the model."""
        return Requirements(model=self.model, path=self.target.partition("?")[0])


class PassThrough(Exchange):
    """An exchange whose body nobody reads and whose answer nobody judges: any answer is the engine's to give.

    It reaches one model and no fallback of it. A request that may not reach an engine twice is sent once.
    """

    __slots__ = ("_call", "repeatable")
    _worth_a_retry: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, owner: Owner, door: Door, path: str, headers: Headers, request_id: bytes, call: Call) -> None:
        super().__init__(owner, door, path, headers, request_id)
        self._call = call
        self.repeatable = call.method in _IDEMPOTENT

    def answer(self, attempt: Attempt, body: bytes, complete: bool) -> None:
        """A piece of the engine's answer; its head is passed on as soon as it comes, and events are no matter here."""
        if attempt.head is not None and attempt.head.stream:
            attempt.head = msgspec.structs.replace(attempt.head, stream=False)
        if body or complete:
            super().answer(attempt, body, complete)
        else:
            self._commit(attempt, None)

    def _needs(self, body: bytes) -> Requirements:
        return self._call.needs()

    def decide(self, needs: Requirements, failed: tuple[str, ...] = ()) -> Route:
        """As of every exchange, but for fallbacks and what its caller may not use."""
        return route_to_engine(self._owner.router, needs, self._owner.fleet.snapshot, self._caller, failed)

    def body_for(self, route: Route) -> bytes:
        """The body as it came."""
        return self._body

    def _written_for(self, upstream: Upstream) -> bytes:
        return upstream.call(self._call.method, self._call.target, self._headers, self.request_id, self._outgoing)

    def _commit(self, attempt: Attempt, length: int | None) -> bool:
        return super()._commit(attempt, None if self._call.method == "HEAD" else length)

    def _judge(self, attempt: Attempt, status: int, first_byte: float) -> None:
        if status < 500:
            self._owner.fleet.succeeded(attempt.upstream.name)


def route_to_engine(
    router: Router, needs: Requirements, snapshot: Snapshot, caller: Caller | None, failed: tuple[str, ...]
) -> Route:
    """The replica whose engine ``caller`` reaches as a whole. Raises as ``Router.route`` does, and ``Forbidden``."""
    within_reach = snapshot if caller is None else _WithinReach(snapshot, caller)
    return router.route(needs, within_reach, failed, fallbacks=False)


class _WithinReach:
    """The part of a snapshot whose engines serve nothing that a caller may not use.

    Nobody looks into what goes to an engine as it comes, so it may ask for anything that is served there.
    """

    def __init__(self, snapshot: Snapshot, caller: Caller) -> None:
        self._snapshot = snapshot
        self._caller = caller

    def candidates(self, model: str) -> Sequence[Candidate]:
        """Raises ``Forbidden`` if there are some, and none is within reach."""
        known = self._snapshot.candidates(model)
        forbidden = self._forbidden(model)
        reached = [candidate for candidate in known if candidate.backend not in forbidden]
        if known and not reached:
            backend = known[0].backend
            raise Forbidden(
                f"Backend '{backend}' also serves model '{forbidden[backend]}', which this key may not use: "
                f"whoever reaches the whole engine reaches that too",
                param="model",
            )
        return reached

    def _forbidden(self, model: str) -> dict[str, str]:
        """The backends out of reach, each with a model that makes it so; ``model`` itself was asked for and granted."""
        return {
            candidate.backend: other
            for other, candidates in self._snapshot.models.items()
            if other != model and not self._caller.may_use(other)
            for candidate in candidates
        }
