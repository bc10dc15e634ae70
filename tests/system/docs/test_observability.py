"""The dashboard and the alerts ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.bundled_services import EVERY_METRIC
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "observability"
LABELS = {"le", "job"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {metric.name + suffix: set(metric.labels) for metric in EVERY_METRIC for suffix in SUFFIXES[metric.kind]}


BOARDS = [json.loads(file.read_text("utf-8")) for file in sorted((FOLDER / "grafana/dashboards").glob("*.json"))]


def queries() -> Iterator[tuple[str, str]]:
    """Each query, with the template of its text."""
    for dashboard in BOARDS:
        yield from queries_of(dashboard)
    alerts: Any = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    for group in alerts["groups"]:
        for rule in group["rules"]:
            yield rule["expr"], rule["annotations"]["summary"].replace("$labels.", "")


def queries_of(dashboard: Any) -> Iterator[tuple[str, str]]:
    """Each query of a dashboard, with the template of its text."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]


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


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_a_dashboard_can_be_narrowed_by_its_variables(board: Any) -> None:
    variables = [each["name"] for each in board["templating"]["list"]]
    assert len(variables) == 2
    for query, _ in queries_of(board):
        if "$__rate_interval" in query:
            for label in variables:
                metrics = [name for name in re.findall(r"\benginehouse_\w+", query) if label in SERIES[name]]
                assert query.count(f'{label}=~"${label}') == len(metrics), query


def test_points_of_latencies_lead_to_traces() -> None:
    dashboard = json.loads((FOLDER / "grafana/dashboards/enginehouse.json").read_text("utf-8"))
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    shown = [target["expr"] for target in targets if target.get("exemplar")]
    assert shown
    assert all("request_duration" in query or "time_to_first_token" in query for query in shown)
    sources: Any = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/sources.yaml").read_text("utf-8"))
    prometheus, jaeger = sources["datasources"]
    assert prometheus["jsonData"]["exemplarTraceIdDestinations"] == [
        {"name": "trace_id", "datasourceUid": jaeger["uid"]}
    ]


def test_the_alerts_fire_when_they_should() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool is in PATH: Debian's package prometheus has it")
    told = subprocess.run([program, "test", "rules", "alerts.test.yml"], cwd=FOLDER, capture_output=True, check=False)
    assert told.returncode == 0, told.stdout.decode() + told.stderr.decode()


def test_every_alert_is_tested() -> None:
    alerts: Any = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    names = {rule["alert"] for group in alerts["groups"] for rule in group["rules"]}
    text = (FOLDER / "alerts.test.yml").read_text("utf-8")
    assert {name for name in names if f"alertname: {name}" in text} == names


def test_every_alert_has_a_severity_and_says_what_to_do() -> None:
    alerts: Any = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    sections = re.findall(r"^## (\w+)\n\n\*(\w+)\.\*", (ROOT / "docs/how-to/runbook.md").read_text("utf-8"), re.M)
    told = {name: severity.lower() for name, severity in sections}
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert {rule["alert"]: rule["labels"]["severity"] for rule in rules} == told
    for rule in rules:
        assert rule["annotations"]["runbook_url"].endswith(f"/how-to/runbook/#{rule['alert'].lower()}")


def test_every_metric_of_requests_and_engines_is_on_the_dashboard() -> None:
    asked = " ".join(query for query, _ in queries())
    left_out = {metric.name for metric in EVERY_METRIC if metric.name not in asked}
    assert left_out == {
        "enginehouse_backend_error_share",
        "enginehouse_backend_latency_seconds",
        "enginehouse_build_info",
        "enginehouse_discovered_backends",
        "enginehouse_discovery_age_seconds",
        "enginehouse_engine_answer_bytes",
        "enginehouse_engine_answers_dropped",
        "enginehouse_intercepted",
        "enginehouse_limits_alone",
        "enginehouse_mirror_statuses",
        "enginehouse_request_body_bytes",
        "enginehouse_slow_plugin_calls",
        "enginehouse_stale_connections",
        "enginehouse_wanted_replicas",
    }
