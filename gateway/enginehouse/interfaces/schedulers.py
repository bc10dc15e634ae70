"""Schedulers: decide when a request runs, and which replica is loaded for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol

import msgspec

from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import Phase, SwapDone, SwapId, Ticket
from enginehouse.interfaces.swappers import HostFacts, Swapper


class Effects(Protocol):
    """A scheduler's only access to the gateway. No method waits, and none calls the scheduler before it returns."""

    def replica_state(self, replica: str) -> ReplicaState | None:
        """The state of ``replica``, or ``None`` if this host does not have it."""

    def running(self) -> Mapping[str, ReplicaState]:
        """The replicas that are neither stopped nor failed."""

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        """Begin to stop ``evict`` and then start ``target``. ``on_swap_done`` follows."""

    def cancel_swap(self, swap: SwapId) -> None:
        """Cancel a swap. ``on_swap_done`` follows with an error."""

    def grant(self, ticket: Ticket) -> bool:
        """Send the request to its replica. ``False`` if its client has left: then the request is not in flight."""

    def refuse(self, ticket: Ticket, error: Exception) -> None:
        """Answer the request with ``error``."""

    def stop(self, replicas: Sequence[str], timeout: float) -> None:
        """Begin to stop ``replicas``, each within ``timeout`` seconds. ``on_stopped`` follows for each."""

    def vacate(self, replicas: Sequence[str]) -> None:
        """Begin to move live streams of ``replicas`` away, which a waiting swap evicts.

        Only streams move that another ready replica can continue. Call this again while the swap waits; a move in
        progress does not begin twice.
        """

    def now(self) -> float:
        """The clock of the scheduler, in seconds."""


class SchedulingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of ``[scheduling]`` and of the host. Times are in seconds; 0 means no limit."""

    queue_timeout: float = 600.0
    """How long a request may wait. After that, refuse it with ``QueueTimeout``."""
    max_queue: int = 1000
    """How many requests may wait on the host. Refuse one more with ``QueueFull``."""
    min_residency: float = 0.0
    """How long a loaded replica stays before it may be evicted."""
    max_wait: float = 60.0
    """How long other requests may overtake a waiting one."""
    max_loads: int = 1
    """How many replicas may load at once: ``hosts.*.max_loads``."""
    cancel_loads: Literal["wanted", "always", "never"] = "wanted"
    """When to cancel a load that no request waits for any more: only if another load needs its place, always, never."""
    shed_after: float = 0.0
    """The wait above which requests are refused: ``routing.shed_after``. The gateway itself does that."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting request, as operators and clients see it."""

    ticket: Ticket
    phase: Phase
    """``QUEUED``, or ``LOADING`` while its replica is being loaded; the gateway makes that ``PLACING`` or
    ``DOWNLOADING`` where it is."""
    position: int
    """Its position in the order of service; 0 is next."""


class CallerTurn(ABC):
    """The turn of one request, from its first queue to its end. ``at``: as ``Ticket.turn`` has it; it never changes."""

    at: float

    @abstractmethod
    def granted(self) -> None:
        """The request is served now; again if it is sent once more."""

    @abstractmethod
    def ended(self, used: int) -> None:
        """The request has ended, and its prompt and answer had so many tokens."""


class CallerTurns(ABC):
    """Gives requests their turns in the queues of all hosts. Each process of a gateway has its own."""

    @abstractmethod
    def next(self, caller: str | None, weight: float, prompt: int, answer_limit: int | None) -> CallerTurn:
        """The turn of a request that begins to wait.

        - ``caller``: the name of its key, if it has one. ``weight``: its share, relative to those of others.
        - ``prompt``: the estimated tokens of its prompt.
        - ``answer_limit``: the most tokens of its answer, if it says so.
        """


class Scheduler(ABC):
    """The queue of one host and its decisions: a state machine over ``Effects``.

    Each event is one call, one at a time, and no call may wait. Every ticket must be granted or refused exactly once,
    unless it is cancelled. ``TicketQueue``, ``SchedulingState`` and ``StarvationClaims`` do the bookkeeping;
    ``check_scheduler`` of ``enginehouse_kit.testing`` checks a scheduler against these rules.
    """

    shares: ClassVar[type[CallerTurns] | None] = None
    """What gives tickets their turns (``Ticket.turn``); ``None``: all have the same."""

    @abstractmethod
    def prepare(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Called once, before any event.

        The gateway checks the swapper's answers: they name running replicas only and never evict a pinned one. Any
        method of the swapper may raise a ``RequestError``; refuse the request with it.
        """

    @abstractmethod
    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """The configuration changed. Use these from now on.

        Waiting requests, requests in flight and swaps in flight stay as they are. ``host`` has removed replicas until
        they have stopped; the gateway itself refuses the requests that wait for them.
        """

    @abstractmethod
    def on_request(self, ticket: Ticket) -> None:
        """A request needs a replica: grant it, refuse it, or let it wait; start a swap if one is needed."""

    @abstractmethod
    def on_swap_done(self, done: SwapDone) -> None:
        """A swap ended, with or without an error. It may be one that was cancelled."""

    @abstractmethod
    def on_serve_done(self, replica: str) -> None:
        """A granted request of ``replica`` ended."""

    @abstractmethod
    def on_cancel(self, ticket: Ticket) -> None:
        """The client of a waiting request left. Drop the ticket."""

    @abstractmethod
    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        """An operator unloads ``targets``. Refuse the requests that wait for them, and call ``Effects.stop``.

        Requests in flight have ``timeout`` seconds to end.
        """

    @abstractmethod
    def on_stopped(self, replica: str) -> None:
        """A replica stopped, went to sleep, or exited by itself.

        If it failed, or if the host no longer has it, refuse the requests that wait for it with ``ReplicaLost``: the
        relay routes them again. If a swap is loading it, do nothing, because ``on_swap_done`` follows.
        """

    @abstractmethod
    def on_tick(self, now: float) -> None:
        """Check time limits. Called several times per second while requests wait."""

    @abstractmethod
    def on_shutdown(self, error: Exception) -> None:
        """The gateway stops. Refuse all waiting and all later requests with ``error``."""

    @abstractmethod
    def waiting(self) -> Sequence[Waiting]:
        """Every waiting request, the next one first."""
