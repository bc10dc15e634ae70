"""Metrics: series, their bounds, the pages of engines, and their form for OTLP."""

from __future__ import annotations

from collections.abc import Mapping
from time import thread_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import Histogram as OtlpHistogram
from opentelemetry.sdk.metrics.export import Sum
from opentelemetry.sdk.resources import Resource
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from enginehouse.app import Gateway
from enginehouse.config.routing import MirrorSettings, RoutingSettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.request_record import RequestRecord
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.telemetry import metric_list as counted
from enginehouse.telemetry.counters import Counters, Histogram
from enginehouse_kit.testing import request_record
from enginehouse_metrics import metric_list
from enginehouse_metrics.engines import MetricsPage
from enginehouse_metrics.families import families, histograms, numbers
from enginehouse_metrics.merged_pages import merged
from enginehouse_metrics.page import Families
from enginehouse_mirrors.observer import MIRRORED
from enginehouse_otlp.messages import MetricBatch
from enginehouse_otlp.metric_push import as_record
from enginehouse_otlp.process.metrics import metrics_data
from tests.support.changed_config import reconfigure
from tests.support.request_facts import facts_of


def ended(attempt: dict[str, float | None], **fields: Any) -> RequestRecord:
    """The record of a request with one attempt, which a queue granted."""
    known = {"began": 10.25, "ended": 14.5, "sent": 10.5, "first_byte": 12.5, "granted": 10.5, "queued": True}
    (served,) = request_record("m", "a").attempts
    made = msgspec.structs.replace(served, **known | attempt)
    uncounted = {"tokens_in": None, "tokens_out": None}
    times = {"routed": made.began, "granted": made.granted, "sent": made.sent, "first_byte": made.first_byte}
    return request_record("m", "a", arrived=10.0, ended=14.5, attempts=(made,), **uncounted | times | fields)


def count(counters: Counters, record: RequestRecord) -> None:
    counters.add(facts_of(record))


def test_a_stream_counts_its_times_and_tokens() -> None:
    counters = Counters()
    count(counters, ended({}, events=5))
    series = counters.series("a", "m")
    assert series.keys[""].requests == {(200, "match"): 1}
    assert (series.duration.total, series.routing.total, series.overhead.total) == (4.5, 0.25, 0.25)
    assert (series.queue_wait.total, series.first_byte.total, series.first_token.total) == (0.25, 2.0, 2.5)
    assert series.inter_token.total == 0.5
    assert (series.keys[""].input_tokens, series.keys[""].from_usage, series.keys[""].from_chunks) == (0, 0, 5)


def test_a_request_that_was_never_sent_has_no_times_of_its_engine() -> None:
    counters = Counters()
    count(counters, ended(dict.fromkeys(("granted", "sent", "first_byte")), status=503, outcome="load_failed"))
    series = counters.series("a", "m")
    assert series.keys[""].requests == {(503, "match"): 1}
    assert sum(series.queue_wait.counts) == 1
    assert [sum(each.counts) for each in (series.overhead, series.first_byte, series.first_token)] == [0, 0, 0]


def test_models_beyond_the_most_series_count_as_other() -> None:
    counters = Counters(max_series=2)
    for model in ("m0", "m1", "m2", "m3", "m0"):
        counters.series("a", model).duration.observe(1.0)
    assert [(backend, model, series.duration.total) for backend, model, series in counters] == [
        ("a", "m0", 2.0),
        ("a", "m1", 1.0),
        ("other", "other", 2.0),
    ]


def test_keys_beyond_the_most_series_count_as_other() -> None:
    counters = Counters(max_series=2)
    for caller in ("alice", "bob", "carol", "dave", "alice"):
        count(counters, ended({}, events=5, caller=caller))
    keys = counters.series("a", "m").keys
    assert {name: sum(counts.requests.values()) for name, counts in keys.items()} == {"alice": 2, "bob": 1, "other": 2}


def joined(pages: Mapping[MetricsPage, str]) -> bytes:
    return merged((page.labels, text) for page, text in pages.items())


def test_engines_pages_become_one_with_a_label() -> None:
    page = "# HELP n What.\n# TYPE n gauge\nn{%s} %d\n"
    pages = {
        MetricsPage("a", "/metrics"): page % ('x="1"', 5),
        MetricsPage("b", "/metrics"): page % ('backend="mine"', 7),
        MetricsPage("c", "/metrics"): "<html>",
        MetricsPage("d", "/metrics"): "# nothing",
    }
    text = joined(pages)
    (family,) = text_string_to_metric_families(text.decode())
    assert (family.name, family.documentation) == ("n", "What.")
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"backend": "a", "x": "1"}, 5),
        ({"backend": "b", "exported_backend": "mine"}, 7),
    ]


def test_a_models_own_page_also_gets_a_label_for_the_model() -> None:
    pages = {MetricsPage("a", f"/metrics?model={model}", model): f"# TYPE n gauge\nn {model}\n" for model in "12"}
    shown = joined(pages).decode()
    assert 'n{backend="a",model="1"} 1\n' in shown
    assert 'n{backend="a",model="2"} 2\n' in shown


def test_engines_counters_and_histograms_keep_their_names() -> None:
    text = '# TYPE t counter\nt_total 3\n# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 2\nh_count 1\n'
    shown = joined({MetricsPage("a", "/metrics"): text}).decode()
    assert 't_total{backend="a"} 3\n' in shown
    assert 'h_bucket{backend="a",le="+Inf"} 1\n' in shown


VALUES = st.text(max_size=6)
NAMES = st.from_regex(r"_?[a-z][a-z0-9_]{0,5}", fullmatch=True)
"""Names of labels. Those that begin with two underscores are Prometheus's own, and its library refuses them."""


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.floats(allow_nan=False), VALUES)
def test_a_series_keeps_its_labels_and_its_value(labels: dict[str, str], value: float, backend: str) -> None:
    """As Prometheus's library reads it, whatever is in its labels."""
    gauge = GaugeMetricFamily("n", "What.", labels=list(labels))
    gauge.add_metric(list(labels.values()), value)
    page = generate_latest(Families(lambda: [gauge])).decode()
    [family] = text_string_to_metric_families(merged([({"backend": backend}, page)]).decode())
    theirs = {f"exported_{name}" if name == "backend" else name: text for name, text in labels.items()}
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"backend": backend} | theirs, value)]


def test_metrics_for_otlp_have_separate_buckets_and_no_total() -> None:
    histogram = Histogram((0.5, 1.0))
    for seconds in (0.1, 0.2, 0.7, 5.0):
        histogram.observe(seconds)
    families = [
        numbers(counted.RETRIES, [(["a"], 3)]),
        histograms(metric_list.DURATION, [(["a", "m"], histogram), (["b", "m"], histogram)]),
    ]
    batch = MetricBatch(2, 1, [as_record(family) for family in families])
    (resource,) = metrics_data(batch, Resource({}), "0").resource_metrics
    counter, times = resource.scope_metrics[0].metrics
    assert (counter.name, times.name, times.unit) == (
        "enginehouse_retries",
        "enginehouse_request_duration_seconds",
        "s",
    )
    assert isinstance(counter.data, Sum)
    assert [(point.attributes, point.value) for point in counter.data.data_points] == [({"backend": "a"}, 3)]
    assert isinstance(times.data, OtlpHistogram)
    first, second = times.data.data_points
    assert (first.attributes, second.attributes) == ({"backend": "a", "model": "m"}, {"backend": "b", "model": "m"})
    assert (list(first.bucket_counts), list(first.explicit_bounds)) == ([2, 1, 1], [0.5, 1.0])
    assert first.count == 4
    assert first.sum == pytest.approx(6.0)


def test_series_of_a_mirror_that_a_reload_has_removed_are_shown_only_if_they_counted_anything() -> None:
    mirrors = {model: MirrorSettings(to="new") for model in ("used", "unused")}
    gateway = Gateway(Config(routing=RoutingSettings(mirrors=mirrors)), load_plugins(PluginSettings()).registry)
    gateway.path.observe()

    def page() -> dict[str, Metric]:
        return {family.name: family for family in families(gateway.application.state.facts)}

    def shown() -> set[str]:
        return {each.labels["model"] for each in page()[MIRRORED.name].samples}

    assert shown() == {"used", "unused"}
    gateway.relay.context.counters.count(MIRRORED, ("used", "new", "same"))
    reconfigure(gateway, Config())
    assert shown() == {"used"}
    assert len(page()["enginehouse_spans"].samples) == 2, "what an observer shows at 0 from the start stays"


@pytest.mark.parametrize(
    "line", ["a" + " " * 8000 + "}", "a{" + "} " * 4000 + "}", "a 1" + " x" * 4000, "#" + " " * 8000]
)
def test_what_an_engine_prints_holds_nothing_up(line: str) -> None:
    began = thread_time()
    assert joined({MetricsPage("a", "/metrics"): line}) == b""
    assert thread_time() - began < 1
