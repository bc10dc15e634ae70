"""HTTP pages: what those of plugins know of their gateway."""

from __future__ import annotations

from enginehouse.domain.request_record import EndedRequest
from enginehouse.http.page_facts import PageFacts
from enginehouse.interfaces.routes import guarded
from enginehouse.telemetry.log_ring import LogLine, LogRing
from enginehouse.telemetry.model_totals import ModelTotals

__all__ = [
    "EndedRequest",
    "LogLine",
    "LogRing",
    "ModelTotals",
    "PageFacts",
    "guarded",
]
