"""The queue of a backend, as requests see it: in this process, or at the owner of the engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from enginehouse.domain.ticket import Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.scheduling.flow_control import Backlog


class TicketHolder(Protocol):
    """Receives the answer to one ticket: a request of the relay, or a load that an operator asked for."""

    def granted(self) -> bool:
        """The replica is ready. Return ``False`` if it is no longer wanted."""

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        """The ticket will not be granted. ``joined_load``: because a load failed that had begun before it came."""


class RequestQueue(ABC):
    """Grants tickets for replicas.

    ``backlog``: counts what waits, perhaps in other queues of the host too.
    ``launches``: the engines are launched by the gateway, so one that breaks off a request may have exited.
    ``decides_here``: no ticket is granted at once elsewhere, unless ``reserve`` was awaited.
    ``now`` returns the time of tickets, in seconds.
    """

    launches: ClassVar[bool] = True
    decides_here: ClassVar[bool] = True
    backlog: Backlog
    now: Callable[[], float]

    def place(self, replica: str) -> tuple[str, int]:
        """The replica that a ticket for ``replica`` names, and the priority that its model adds to the ticket's."""
        return replica, 0

    @abstractmethod
    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        """Ask for a replica. ``holder`` gets the answer, possibly before this returns."""

    async def reserve(self, replica: str) -> None:
        """Have the next ticket for ``replica`` granted at once, if a place is free now. Raises ``RequestError``."""

    @abstractmethod
    def cancel(self, ticket: Ticket) -> None:
        """Withdraw a waiting ticket; its holder gets no answer."""

    @abstractmethod
    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        """Report that a granted request has ended. ``caller``, ``keep_alive``: as for ``EngineControl.served``."""

    @abstractmethod
    def connection_lost(self, replica: str, generation: int) -> None:
        """Report that an engine broke a granted request off. Its place stays taken until the reason is known."""

    @abstractmethod
    def found_unloaded(self, replica: str, generation: int) -> None:
        """Report that a server refused a granted request because its model is not loaded.

        ``generation``: the engine's number when the request was granted.
        """

    @abstractmethod
    def generation(self, replica: str) -> int:
        """The number of times that the engine of ``replica`` has exited by itself."""

    @abstractmethod
    async def has_exited(self, replica: str, generation: int) -> bool:
        """Wait a moment for news of an engine that broke a request off; whether it exited.

        ``generation``: its number when the request was granted.
        """

    @abstractmethod
    def is_unloaded(self, replica: str) -> bool:
        """Whether an operator unloads ``replica``, or has unloaded it."""

    @abstractmethod
    def waiting(self) -> Sequence[Waiting]:
        """The waiting requests, the next one first."""
