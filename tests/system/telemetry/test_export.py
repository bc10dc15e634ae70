"""How the traces and the metrics of a real gateway get to a collector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_otlp.genai_metrics import METRICS
from tests.support import plain_httpx
from tests.support.bundled_services import metrics_with
from tests.support.otlp_collector import GrpcCollector, HttpCollector
from tests.support.traced_gateway import ask, backend, settings


class Traced(NamedTuple):
    gateway: RunningGateway
    collector: HttpCollector


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("m") as engine:
        yield engine


@pytest.fixture(scope="module")
def traced(engine: SimEngine) -> Iterator[Traced]:
    """A gateway that traces everything and sends its metrics too."""
    more = 'headers = { "X-Collector-Key" = "planted-key" }\npush_metrics = "200ms"\ngenai_metrics = true\n'
    with HttpCollector() as collector:
        config = settings(collector.url, more) + backend("good", engine, "m") + backend("next", engine, "m")
        with RunningGateway(config) as gateway:
            gateway.until_health(good="healthy", next="healthy")
            yield Traced(gateway, collector)


def test_spans_tell_their_kind_and_the_service(traced: Traced) -> None:
    ask(traced.gateway, "m", trace="4af7651916cd43dd8448eb211c80319c")
    spans = traced.collector.trace("4af7651916cd43dd8448eb211c80319c", "chat m", "route", "upstream")
    assert [spans[name].kind for name in ("chat m", "route", "upstream")] == ["server", "internal", "client"]
    assert {span.resource["service.name"] for span in spans.values()} == {"enginehouse"}


def test_the_collector_gets_the_configured_headers(traced: Traced) -> None:
    ask(traced.gateway, "m", trace="5af7651916cd43dd8448eb211c80319c")
    traced.collector.trace("5af7651916cd43dd8448eb211c80319c", "chat m")
    assert all(headers["x-collector-key"] == "planted-key" for headers in traced.collector.requests)


def test_metrics_reach_the_collector_too(traced: Traced) -> None:
    ask(traced.gateway, "m")

    def counted() -> float:
        metric = traced.collector.metrics.get("enginehouse_requests")
        return sum(point.as_double for point in metric.sum.data_points) if metric is not None else 0.0

    traced.collector.until(lambda _: counted() > 0)
    times = traced.collector.metrics["enginehouse_request_duration_seconds"]
    assert times.unit == "s"
    assert all(sum(point.bucket_counts) == point.count for point in times.histogram.data_points)
    assert not any(point.HasField("min") or point.HasField("max") for point in times.histogram.data_points)


def test_metrics_of_the_conventions_reach_the_collector_beside_our_own(traced: Traced) -> None:
    ask(traced.gateway, "m", stream=True)

    def streams() -> int:
        metric = traced.collector.metrics.get("gen_ai.server.time_to_first_token")
        return sum(point.count for point in metric.histogram.data_points) if metric is not None else 0

    traced.collector.until(lambda _: streams() > 0)
    assert {name for name in traced.collector.metrics if name.startswith("gen_ai.")} == METRICS.keys()


def test_the_environment_may_choose_what_is_traced_and_the_log_says_so(engine: SimEngine) -> None:
    with HttpCollector() as collector:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
            "OTEL_SERVICE_NAME": "edge",
        }
        with RunningGateway(backend("a", engine, "m"), env) as gateway:
            gateway.until_health(a="healthy")
            ask(gateway, "m")
            (root, *_) = collector.until(lambda spans: any(span.kind == "server" for span in spans))
            assert root.resource["service.name"] == "edge"
            assert "Traces of 100 % of the requests" in gateway.log
            assert f"go to {collector.url} (OTLP, http)" in gateway.log


def test_the_page_has_the_listed_metrics_with_their_labels_and_no_others(traced: Traced) -> None:
    ask(traced.gateway, "m")
    found = {each.name: each for each in families(plain_httpx.get(f"{traced.gateway.url}/metrics").text)}
    listed = metrics_with([service["name"] for service in traced.gateway.status()["services"]])
    assert {name for name in found if not name.startswith("process_")} == {metric.name for metric in listed}
    assert {"process_cpu_seconds", "process_open_fds", "process_resident_memory_bytes"} <= set(found)
    for metric in listed:
        family = found[metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} <= {frozenset(metric.labels)}
    seen = {name for name, family in found.items() if family.samples}
    assert {"enginehouse_requests", "enginehouse_output_tokens", "enginehouse_build_info"} <= seen


def test_the_metrics_of_all_engines_are_one_page(traced: Traced) -> None:
    page = plain_httpx.get(f"{traced.gateway.url}/metrics/engines").text
    for name in ("good", "next"):
        assert f'vllm:num_requests_running{{backend="{name}"' in page
    assert page.count("# TYPE vllm:num_requests_running gauge") == 1


def test_spans_that_wait_when_the_gateway_stops_are_sent(engine: SimEngine) -> None:
    with HttpCollector() as collector:
        with RunningGateway(settings(collector.url, 'flush_timeout = "30s"') + backend("a", engine, "m")) as gateway:
            gateway.until_health(a="healthy")
            ask(gateway, "m", trace="6af7651916cd43dd8448eb211c80319c")
        assert {"chat m", "upstream"} <= {span.name for span in collector.spans}


def test_spans_travel_by_grpc(engine: SimEngine) -> None:
    with GrpcCollector() as collector:
        config = settings(collector.url, 'protocol = "grpc"\nheaders = { key = "k" }') + backend("a", engine, "m")
        with RunningGateway(config) as gateway:
            gateway.until_health(a="healthy")
            ask(gateway, "m", trace="7af7651916cd43dd8448eb211c80319c")
            collector.trace("7af7651916cd43dd8448eb211c80319c", "chat m", "upstream")
        assert collector.requests[0]["key"] == "k"


def test_variables_of_opentelemetry_name_the_collector_and_the_service(engine: SimEngine) -> None:
    with HttpCollector() as collector:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "key=v",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=edge,team=a",
        }
        config = '[telemetry]\ntraces = "otlp"\nsample_ratio = 1\n' + backend("a", engine, "m")
        with RunningGateway(config, env) as gateway:
            gateway.until_health(a="healthy")
            ask(gateway, "m", trace="8af7651916cd43dd8448eb211c80319c")
            span = collector.trace("8af7651916cd43dd8448eb211c80319c", "chat m")["chat m"]
        assert (span.resource["service.name"], span.resource["team"]) == ("edge", "a")
        assert collector.requests[0]["key"] == "v"
