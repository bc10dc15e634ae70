"""What observers and exporters get of requests, beside ``RequestRecord``."""

from __future__ import annotations

from enginehouse.config.telemetry import TelemetrySettings as TelemetrySettings
from enginehouse.domain.request_facts import AttemptFacts as AttemptFacts
from enginehouse.domain.request_facts import RequestFacts as RequestFacts
from enginehouse.domain.request_record import EngineTimings as EngineTimings
from enginehouse.domain.request_record import StreamGap as StreamGap
from enginehouse.interfaces.exporters import Sampling as Sampling
from enginehouse.interfaces.exporters import SwapRecord as SwapRecord
from enginehouse.interfaces.exporters import TracedRequest as TracedRequest
from enginehouse.interfaces.observers import Figures as Figures
from enginehouse.interfaces.observers import ReadContents as ReadContents
from enginehouse.interfaces.observers import RequestContents as RequestContents
from enginehouse.interfaces.observers import SendAside as SendAside
from enginehouse.interfaces.observers import WaitingStream as WaitingStream
from enginehouse.telemetry.trace_context import UPSTREAM_SPAN as UPSTREAM_SPAN
from enginehouse.telemetry.trace_context import span_number as span_number
