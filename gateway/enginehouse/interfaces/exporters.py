"""Exporters: observers that send traces and metrics elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from enginehouse.domain.explanation import RouteDetails
from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.observers import Observer

if TYPE_CHECKING:  # the process that exports needs neither
    from prometheus_client.core import Metric

    from enginehouse.config.telemetry import TelemetrySettings


class SwapRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One swap. Times are in seconds of the gateway's clock. ``outcome``: ``ready`` or ``failed``."""

    target: str
    evicted: tuple[str, ...]
    began: float
    ended: float
    outcome: str


class TracedRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request with its trace. Times are in ``perf_counter`` seconds of the gateway.

    ``root``: the id of its own span; all other ids are hexadecimal digits. ``parent``: the client's span, empty without
    one. ``link``: the trace and the span that the client sent, if the trace does not continue them. ``state``: the
    client's ``tracestate``. ``addresses``: the URL of each attempt's engine, if known. ``question`` and ``answer``:
    the bodies, only with ``telemetry.capture_content``. ``model``: the name for the span; empty if nothing that the
    gateway knows has it. ``refused``: the decision that found no replica. ``ends``: of the answer, where engines name
    its model, its id and its finish reasons. ``parameters``: as ``Exporter.parameters`` has returned them.
    """

    trace_id: bytes
    root: int
    parent: bytes
    link: tuple[bytes, bytes]
    state: bytes
    record: RequestRecord
    addresses: tuple[str, ...] = ()
    swaps: tuple[SwapRecord, ...] = ()
    question: bytes = b""
    answer: bytes = b""
    model: str = ""
    refused: RouteDetails | None = None
    parameters: bytes = b""
    ends: tuple[bytes, bytes] = (b"", b"")


class Sampling(NamedTuple):
    """The requests that are traced: the share ``ratio``.

    ``follows_parent``: the flag of a client's ``traceparent`` decides first.
    """

    ratio: float
    follows_parent: bool = True


class Exporter(Observer):
    """An observer that sends traces, and possibly metrics, as ``[telemetry]`` says.

    If several are installed, the gateway uses the last one; bundled plugins come first. The methods of an observer,
    ``sampling`` and ``parameters`` are called in every process that relays requests, all others only in the one that
    owns the engines. An exception of any method but ``prepare`` is logged, and costs traces.
    """

    @abstractmethod
    def sampling(self, settings: TelemetrySettings) -> Sampling | None:
        """The requests to trace; ``None`` if none are."""

    def parameters(self, body: bytes) -> bytes:
        """Return the parameters of a traced request, from its ``body``, in a form of the exporter's own."""
        return b""

    @abstractmethod
    def prepare(
        self,
        settings: TelemetrySettings,
        collect: Callable[[], Iterable[Metric]],
        observe: Callable[[Observer], None],
    ) -> None:
        """Get ready to export, before ``start``; nothing is sent yet. Raises ``ConfigError``.

        ``collect`` returns the metrics of ``/metrics`` as they are then. ``observe`` adds an observer that gets the
        requests of all processes.
        """

    @abstractmethod
    def start(self) -> None:
        """Begin, on the running event loop."""

    @abstractmethod
    def admits(self) -> bool:
        """Whether a request that begins now may be traced. Called for each sampled one, so it must not wait."""

    @abstractmethod
    def add(self, request: TracedRequest) -> None:
        """Send ``request`` soon. Must return at once."""

    @abstractmethod
    async def close(self) -> None:
        """Send what waits, within ``telemetry.flush_timeout``, and end."""
