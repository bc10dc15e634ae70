"""A live stream that leaves its engine on purpose, as the gateway hands it to a continuer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from enginehouse.domain.replica import Candidate
from enginehouse.interfaces.drivers import EngineClient, SupportsContinuation
from enginehouse.interfaces.kept_streams import KeptStream, Question

T = TypeVar("T")


class StreamMove(Protocol):
    """The move of one live stream to ``candidate``. Until ``cut``, its source serves it.

    - ``driver`` and ``engine``: of the candidate.
    - ``engine_request``: the request's id there, if engines have moved it there themselves; else empty.
    - ``estimated_tokens``: of the client's prompt.
    - ``timeout``: the time limit of each half of the move (``rescheduling.migrate_timeout``), in seconds.
    """

    @property
    def candidate(self) -> Candidate: ...

    @property
    def driver(self) -> SupportsContinuation: ...

    @property
    def engine(self) -> EngineClient: ...

    @property
    def engine_request(self) -> str: ...

    @property
    def estimated_tokens(self) -> int: ...

    @property
    def timeout(self) -> float: ...

    def now(self) -> float:
        """The seconds of the gateway's clock."""

    def kept(self) -> KeptStream:
        """The part that the client has. Raises ``CannotContinue`` with the reason if the stream stays where it is."""

    async def reserve(self) -> None:
        """Take a place in the queue of the candidate. Raises ``CannotContinue`` if it is full."""

    async def unless_ended(self, step: Coroutine[Any, Any, T]) -> T | None:
        """The result of ``step``. Raises ``CannotContinue`` at once if the stream ends meanwhile."""

    async def cut(self, ask: Callable[[KeptStream], Awaitable[Question]]) -> float:
        """Read no more of the source, and have the candidate answer what ``ask`` returns.

        Returns for how many seconds the client had to wait. Raises ``CannotContinue`` if the candidate fails; the
        source then serves the stream again.
        """
