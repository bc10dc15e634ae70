"""Observers: notified of events."""

from __future__ import annotations

from abc import ABC
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from enginehouse.domain.metric_info import MetricInfo
from enginehouse.domain.replica import Health, ReplicaState, Route
from enginehouse.domain.request import Headers
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.ticket import Phase, SwapDone
from enginehouse.domain.usage import AuditEntry

if TYPE_CHECKING:  # the process that exports needs no services
    from enginehouse.interfaces.services import Configured


class Figures(Protocol):
    """What an observer counts of its ``metrics``. ``labels``: the values of a metric's labels, in their order.

    Where several processes serve requests, the one that answers operators has the sums of all.
    """

    def count(self, metric: MetricInfo, labels: Sequence[str] = (), number: int = 1) -> None:
        """Add to a series of a counter; a ``number`` of 0 shows the series before its first event.

        A metric has at most ``telemetry.max_series`` series: what is counted in further ones is counted as ``other``.
        """

    def observe(self, metric: MetricInfo, labels: Sequence[str], seconds: float) -> None:
        """Add a time to a series of a histogram."""

    def measured(self, metric: MetricInfo) -> Sequence[tuple[tuple[str, ...], int, float]]:
        """Every series: its labels, how much was counted or how many times were observed, and the sum of the times."""


class WaitingStream(Protocol):
    """A stream whose client has got nothing of its answer yet.

    - ``number``: that of its request. No later one gets it.
    - ``id``: the value of ``x-request-id``, which clients choose.
    - ``path``: the endpoint. ``model``: the one that it waits for; empty until that is decided.
    - ``phase``: how far it is; ``SERVING`` once it waits no more for its replica. ``position``: in the order of
      service, while it is queued; 0 is next.
    - ``waited``: the seconds since the request was whole.
    - ``has_begun``: something was written to the client, with status 200: an error can only be the last event.
    """

    number: int
    id: str
    path: str
    model: str
    phase: Phase
    position: int
    waited: float

    @property
    def has_begun(self) -> bool: ...

    def write(self, piece: bytes) -> bool:
        """Write whole events or comments, which begins the stream. ``False`` if the client cannot have them."""


ServingState = Literal["ready", "reloading", "stopping", "replacing", "replaced"]


class RequestContents(NamedTuple):
    """What a request asked for, in OpenAI's form. ``headers``: as they came, so with the client's key."""

    path: str
    headers: Headers
    body: bytes


ReadContents = Callable[[RequestRecord, Requirements, RequestContents], None]


class SendAside(Protocol):
    """Sends requests whose answers nobody reads beside those of clients."""

    def __call__(
        self, model: str, contents: RequestContents, request_id: str, on_end: Callable[[RequestRecord], None]
    ) -> bool:
        """Send a request to ``model``, whatever ``contents`` name; then ``on_end`` gets its record.

        It has one try, without a key, comes after all requests of clients, and goes to a loaded replica with a free
        slot. Returns whether it was sent: not if there is none, if requests wait for the model, or if 16 of this
        process, or 64 MiB, are on their way. Requirements with ``zones`` say that contents must go nowhere else.
        """


class Observer(ABC):  # noqa: B024 - every event is optional
    """Override the methods of the events that you need. An event that no observer overrides costs nothing.

    Methods must return at once. The gateway logs an exception, which has no other effect. Where several processes serve
    requests, each has an observer of its own.
    """

    metrics: ClassVar[Sequence[MetricInfo]] = ()
    """The counters and histograms that it counts in its ``Figures``, by names that no other metrics have."""

    def use_figures(self, figures: Figures) -> None:
        """Keep what ``metrics`` are counted in. Called once, before all else."""

    def use_aside(self, aside: SendAside) -> None:
        """Keep what sends requests aside. Called once, before all events."""

    def status(self) -> Mapping[str, Any]:
        """What ``/api/status`` shows besides: its own keys, for JSON. Asked in the process that answers operators."""
        return {}

    def start(self) -> Awaitable[None] | None:
        """Begin to work, on the running event loop. May be a coroutine, which may run until ``stop``."""

    def stop(self) -> Awaitable[None] | None:
        """End, after the last event: what ``start`` has returned is cancelled. May be a coroutine of 5 s at most."""

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        """The gateway routed a request. It routes a retried request again."""

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap began: the gateway stops the replicas of ``evict``, then starts ``target``."""

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended, with or without an error."""

    def replica_state(self, replica: str, state: ReplicaState) -> None:
        """A replica changed its state."""

    def replicas_changed(self) -> None:
        """Replicas were added or removed."""

    def backend_health(self, backend: str, health: Health) -> None:
        """A backend changed its health."""

    def hung(self, backend: str, why: str) -> None:
        """The engine of a backend hangs: it is given up."""

    def backend_draining(self, backend: str, draining: bool) -> None:
        """An operator drained a backend, or sends it new requests again."""

    def queue_changed(self) -> None:
        """The queue of some host may have changed. This is called often: only set a flag, and read queues later."""

    def serving(self, state: ServingState, detail: str) -> None:
        """The process with the gateway's sockets is in another state.

        - ``ready``: it serves at the URL ``detail``; also after each ``reloading``.
        - ``stopping``: it finishes live requests.
        - ``replacing``: it starts a process that is to take over, at once, with the environment as it is.
        - ``replaced``: the process with the id ``detail`` has taken over.
        """

    def moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        """A live stream moved from one backend to another; its client waited ``gap_ms`` for the next event."""

    def migrated(self, migration: Any, migrated: Any) -> None:
        """A migration ended, even if no request moved: a ``Migration`` and a ``Migrated`` of the kit."""

    def operated(self, entry: AuditEntry) -> None:
        """An operator did something, or tried to: loads, unloads, drains, moves, cancels, reloads, keys."""

    def at_end(self, configured: Configured) -> Callable[[RequestFacts], None] | None:
        """Return what the gateway calls with each request at its very end; ``None``, the default, for nothing.

        Every request pays for such a call, so it should take microseconds, and keep and change nothing: ``finished``
        suits all else. Called at start, and with each further configuration that is in force.
        """
        return None

    def streams_wait(self, configured: Configured) -> Callable[[Sequence[WaitingStream]], None] | None:
        """Return what the gateway calls with all streams that wait, twice a second while there are some.

        ``None``, the default, for nothing. Called as ``at_end`` is.
        """
        return None

    def with_contents(self, configured: Configured) -> ReadContents | None:
        """Return what the gateway calls with each request that has ended, and what it asked for; ``None`` for nothing.

        Forms, requests aside, and requests that were refused unread are left out. Contents are in memory only for the
        call. As ``at_end``, it should take microseconds, and this is called with each configuration in force.
        """
        return None

    def finished(self, record: RequestRecord) -> None:
        """A request ended: it was answered, refused, cancelled, or left by its client.

        The gateway calls this when the answer is on its way. Calls that take more than 5 ms together wait for four
        times as long before they go on, and of more than 10,000 records that wait for that, later ones are dropped.
        """
