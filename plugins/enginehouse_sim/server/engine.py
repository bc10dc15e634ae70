"""What the server knows of the engine behind it.

Everything that decides *when* a token comes is on the other side of ``Engine``: admission, batching, memory, pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse import RequestError
from enginehouse_sim.scheduler.output import EngineCoreOutput, SchedulerStats
from enginehouse_sim.scheduler.request import RequestState, RequestStatus


class EngineFailed(RequestError):
    """The engine broke: it serves nothing any more until it is started again."""


class Listener(Protocol):
    """Whoever follows one request; times are seconds on the engine's clock."""

    def scheduled(self, now: float) -> None:
        """The step in which it runs for the first time began."""

    def take(self, output: EngineCoreOutput, now: float) -> None:
        """A step brought it this; nothing comes after an output with a ``finish_reason``."""

    def fail(self, error: RequestError) -> None:
        """Nothing will come any more."""


class Ends(Protocol):
    """Whoever can end a request: the engine that it runs in."""

    def end(self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED) -> None:
        """End requests at once and free what they hold. Nobody is told; unknown ones are no error."""


class Engine(Ends, Protocol):
    """The core of an inference engine."""

    def begin(self, request: RequestState, listener: Listener) -> None:
        """Let a request wait for its turn.

        It may come with ``output_token_ids`` that were made elsewhere, and goes on behind them. Raises
        ``InvalidRequest`` for a request that can never be served, and ``EngineFailed``.
        """

    def knows(self, request_id: str) -> bool:
        """Whether this id is in use: by a request, or by what is left of one that ended."""

    def stats(self) -> SchedulerStats:
        """How busy the engine is now, and what it counted since its start."""
