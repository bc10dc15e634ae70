"""HTTP pages: what those of plugins know of their gateway."""

from __future__ import annotations

from enginehouse.domain.request_record import EndedRequest as EndedRequest
from enginehouse.http.page_facts import PageFacts as PageFacts
from enginehouse.interfaces.routes import guarded as guarded
from enginehouse.interfaces.routes import json_response as json_response
from enginehouse.telemetry.log_ring import LogLine as LogLine
from enginehouse.telemetry.log_ring import LogRing as LogRing
from enginehouse.telemetry.model_totals import ModelTotals as ModelTotals
