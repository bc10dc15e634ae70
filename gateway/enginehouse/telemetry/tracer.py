"""Decides which requests are traced, and hands those that have ended to the exporter."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.telemetry.trace_context import Parent, Trace, UnsampledLines, find_traceparent, read_traceparent

_FAILED: Final = 500
_STATE: Final = b"tracestate"


class Tracer:
    """Samples the share ``ratio`` of requests; with ``follows_parent``, the flag of a client's ``traceparent`` decides.

    A request that was slow or failed is traced all the same, from its end. ``admits``: whether a request that begins
    now may be traced. If the exporter is behind, no part of a trace is recorded. ``add`` takes a traced request.
    ``parameters`` returns what the exporter wants of the body of one.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        admits: Callable[[], bool],
        add: Callable[[TracedRequest], None],
        parameters: Callable[[bytes], bytes],
        *,
        ratio: float,
        follows_parent: bool = True,
    ) -> None:
        self.add = add
        self.parameters = parameters
        self._admits = admits
        self._captures = settings.capture_content
        self.propagates = "tracecontext" in settings.propagators
        self._ratio = ratio
        self._follows_parent = follows_parent
        self._unsampled = UnsampledLines()
        self._slow = settings.keep_slow or float("inf")
        self._failed = _FAILED if settings.keep_failed else float("inf")

    def begin(self, headers: Headers) -> tuple[Trace | None, bytes]:
        """The trace of a request with these headers, or else the lines that tell its engine that there is none.

        They are empty where the client's own ``traceparent`` passes, or nothing at all.
        """
        parent = _parent(headers) if self.propagates else None
        sampled = parent.sampled if parent is not None and self._follows_parent else random() < self._ratio
        if not sampled or not self._admits():
            passes = not self.propagates or (parent is not None and self._follows_parent)
            return None, b"" if passes else self._unsampled.next()
        trace = _trace(parent, headers)
        if self._captures:
            trace.captured = bytearray()
        return trace, b""

    def keeps(self, seconds: float, status: int) -> bool:
        """Whether a request that is not traced yet is traced because of its duration or its ``status``."""
        return seconds >= self._slow or status >= self._failed

    def begin_late(self, headers: Headers) -> Trace:
        """A trace of a request that has ended. If the client's span was not sampled, it is linked to that."""
        return _trace(_parent(headers) if self.propagates else None, headers)


def _trace(parent: Parent | None, headers: Headers) -> Trace:
    """A trace that continues the client's span ``parent``, or is linked to it if that was not sampled."""
    if parent is None or not parent.sampled:
        return Trace(link=parent)
    return Trace(parent, state=b",".join([value for name, value in headers if name == _STATE]))


def _parent(headers: Headers) -> Parent | None:
    """The client's span, if there is exactly one valid ``traceparent``."""
    found = headers.traceparent if isinstance(headers, RepeatedHeaders) else find_traceparent(headers)
    return read_traceparent(found) if found else None
