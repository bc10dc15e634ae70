"""The dashboard and the alerts ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from enginehouse.telemetry.metric_list import ALL
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "observability"
LABELS = {"le", "job"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {metric.name + suffix: set(metric.labels) for metric in ALL for suffix in SUFFIXES[metric.kind]}


def queries() -> Iterator[tuple[str, str]]:
    """Each query, with the template of its text."""
    dashboard = json.loads((FOLDER / "grafana/dashboards/enginehouse.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    alerts: Any = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    for group in alerts["groups"]:
        for rule in group["rules"]:
            yield rule["expr"], rule["annotations"]["summary"].replace("$labels.", "")


@pytest.mark.parametrize(("query", "text"), list(queries()))
def test_a_query_uses_metrics_and_labels_that_there_are(query: str, text: str) -> None:
    names = set(re.findall(r"\b(?:enginehouse_\w+|process_\w+|up)\b", query))
    assert names
    assert {name for name in names if name.startswith("enginehouse_")} <= set(SERIES)
    known = LABELS.union(*(SERIES.get(name, set()) for name in names))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    matched = set(re.findall(r"(\w+)\s*=~?\s*\"", query))
    assert grouped | matched <= known
    assert set(re.findall(r"{{\s*(\w+)\s*}}", text)) <= known


def test_every_metric_of_requests_and_engines_is_on_the_dashboard() -> None:
    asked = " ".join(query for query, _ in queries())
    left_out = {metric.name for metric in ALL if metric.name not in asked}
    assert left_out == {
        "enginehouse_backend_latency_seconds",
        "enginehouse_build_info",
        "enginehouse_exporter_restarts",
        "enginehouse_request_body_bytes",
        "enginehouse_slow_plugin_calls",
        "enginehouse_stale_connections",
        "enginehouse_time_to_first_byte_seconds",
    }
