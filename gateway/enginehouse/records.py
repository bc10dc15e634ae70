"""What observers and exporters get of requests, beside ``RequestRecord``."""

from __future__ import annotations

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.request_facts import AttemptFacts, RequestFacts
from enginehouse.domain.request_record import EngineTimings, StreamGap
from enginehouse.interfaces.exporters import ExportCounters, Sampling, SwapRecord, TracedRequest
from enginehouse.interfaces.observers import Figures, WaitingStream
from enginehouse.telemetry.trace_context import UPSTREAM_SPAN, span_number

__all__ = [
    "UPSTREAM_SPAN",
    "AttemptFacts",
    "EngineTimings",
    "ExportCounters",
    "Figures",
    "RequestFacts",
    "Sampling",
    "StreamGap",
    "SwapRecord",
    "TelemetrySettings",
    "TracedRequest",
    "WaitingStream",
    "span_number",
]
