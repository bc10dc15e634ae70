"""Traces of a real gateway, as a collector receives them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import httpx
import psutil
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.otlp_collector import CollectedSpan, GrpcCollector, HttpCollector

CLIENT = "b7ad6b7169203331"


def settings(collector: HttpCollector | GrpcCollector, more: str = "") -> str:
    return f'[telemetry]\ntraces = "otlp"\nendpoint = "{collector.url}"\nsample_ratio = 1.0\n{more}\n'


def backend(name: str, engine: SimEngine, model: str, more: str = "") -> str:
    return f'[backends.{name}]\nurl = "{engine.url}"\nmodels = ["{model}"]\n{more}\n'


def ask(gateway: RunningGateway, model: str, *, trace: str = "", stream: bool = False) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "planted-prompt"}], "stream": stream}
    headers = {"traceparent": f"00-{trace}-{CLIENT}-01"} if trace else {}
    return plain_httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=30)


class Traced(NamedTuple):
    gateway: RunningGateway
    collector: HttpCollector
    engine: SimEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("m", "r") as engine:
        yield engine


@pytest.fixture(scope="module")
def traced(engine: SimEngine) -> Iterator[Traced]:
    """A gateway that traces everything. ``m`` has one engine, ``r`` a broken one and another, ``x`` and ``y`` swap."""
    with HttpCollector() as collector, SimEngine("r") as broken:
        broken.fault("error", status=503)
        swapped = "".join(f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "0", "--tpot", "0"]\n' for name in "xy")
        served = (
            backend("good", engine, "m") + backend("bad", broken, "r") + backend("next", engine, "r", "priority = 9")
        )
        more = 'headers = { "X-Collector-Key" = "planted-key" }\npush_metrics = "200ms"\n'
        config = settings(collector, more) + served + swapped
        with RunningGateway(config) as gateway:
            gateway.until_health(good="healthy", bad="healthy", next="healthy")
            yield Traced(gateway, collector, engine)


def test_a_plain_request_has_a_route_and_an_upstream_below_it(traced: Traced) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    reply = ask(traced.gateway, "m", trace=trace)
    spans = traced.collector.trace(trace, "chat m", "route", "upstream")
    root, route, upstream = spans["chat m"], spans["route"], spans["upstream"]
    assert (root.kind, root.parent_id, root.failed) == ("server", CLIENT, False)
    assert {route.parent_id, upstream.parent_id} == {root.span_id}
    assert upstream.kind == "client"
    assert root.attributes["gen_ai.operation.name"] == "chat"
    assert root.attributes["gen_ai.request.model"] == "m"
    assert root.attributes["enginehouse.backend"] == "good"
    assert root.attributes["enginehouse.request_id"] == reply.headers["x-request-id"]
    usage = reply.json()["usage"]
    assert root.attributes["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert root.attributes["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert root.attributes["enginehouse.tokens.source"] == "usage"
    assert root.attributes["enginehouse.bytes"] == len(reply.content)
    assert route.attributes["enginehouse.strategy"] == "smart"
    assert route.attributes["enginehouse.candidates"] == 1
    assert route.attributes["enginehouse.reason"] == "match"
    assert upstream.attributes["server.port"] == traced.engine.port
    assert root.began <= route.began <= route.ended <= upstream.began < upstream.ended <= root.ended
    assert root.resource["service.name"] == "enginehouse"
    assert "planted-prompt" not in repr(spans)


def test_an_engine_is_told_of_the_upstream_span(traced: Traced) -> None:
    trace = "1af7651916cd43dd8448eb211c80319c"
    ask(traced.gateway, "m", trace=trace)
    told = [request.header("traceparent") for request in traced.engine.requests()]
    upstream = traced.collector.trace(trace, "upstream")["upstream"]
    assert f"00-{trace}-{upstream.span_id}-01" in told


def test_a_stream_tells_its_chunks_and_the_time_to_the_first_one(traced: Traced) -> None:
    trace = "2af7651916cd43dd8448eb211c80319c"
    reply = ask(traced.gateway, "m", trace=trace, stream=True)
    assert reply.status_code == 200, reply.text
    root = traced.collector.trace(trace, "chat m", "upstream")["chat m"]
    events = reply.text.count("data: ")
    assert root.attributes["enginehouse.chunks"] == events
    assert root.attributes["enginehouse.tokens.source"] == "chunks"
    assert root.attributes["gen_ai.usage.output_tokens"] == events - 1
    assert 0 < root.attributes["gen_ai.response.time_to_first_chunk"] < (root.ended - root.began) / 1e9


def test_each_attempt_of_a_retried_request_is_told(traced: Traced) -> None:
    trace = "3af7651916cd43dd8448eb211c80319c"
    assert ask(traced.gateway, "r", trace=trace).headers["x-enginehouse-reason"] == "retry"
    spans = traced.collector.until(lambda spans: len(_named(spans, trace, "upstream")) == 2)
    first, second = sorted(_named(spans, trace, "upstream"), key=lambda span: span.began)
    assert (first.failed, second.failed) == (True, False)
    assert first.attributes["http.response.status_code"] == 503
    assert [span.attributes["enginehouse.backend"] for span in (first, second)] == ["bad", "next"]
    assert len(_named(spans, trace, "route")) == 2
    (root,) = _named(spans, trace, "chat r")
    assert root.attributes["enginehouse.attempts"] == 2
    assert first.span_id != second.span_id


def test_a_request_that_waits_for_a_swap_shows_it(traced: Traced) -> None:
    assert ask(traced.gateway, "x").status_code == 200
    trace = "4af7651916cd43dd8448eb211c80319c"
    assert ask(traced.gateway, "y", trace=trace).status_code == 200
    spans = traced.collector.trace(trace, "chat y", "schedule", "swap", "upstream")
    assert spans["schedule"].parent_id == spans["chat y"].span_id
    assert spans["swap"].parent_id == spans["schedule"].span_id
    assert spans["swap"].attributes["enginehouse.swap.evicted"] == ["x@x"]
    assert spans["schedule"].ended <= spans["upstream"].began


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


def test_the_metrics_of_all_engines_are_one_page(traced: Traced) -> None:
    page = plain_httpx.get(f"{traced.gateway.url}/metrics/engines").text
    for backend in ("good", "bad", "next"):
        assert f'vllm:num_requests_running{{backend="{backend}"' in page
    assert page.count("# TYPE vllm:num_requests_running gauge") == 1


def test_a_killed_exporter_costs_no_request_and_traces_come_back(traced: Traced) -> None:
    (exporter,) = _exporters(traced.gateway)
    os.kill(exporter.pid, signal.SIGKILL)
    killed = time.monotonic()
    statuses = set()
    while (_exporters(traced.gateway) or [exporter])[0].pid == exporter.pid and time.monotonic() < killed + 20:
        statuses.add(ask(traced.gateway, "m").status_code)
    assert statuses == {200}
    before = len(traced.collector.spans)
    while len(traced.collector.spans) == before and time.monotonic() < killed + 20:
        assert ask(traced.gateway, "m").status_code == 200
    assert len(traced.collector.spans) > before
    assert "enginehouse_exporter_restarts_total 1.0" in plain_httpx.get(f"{traced.gateway.url}/metrics").text


def test_spans_that_wait_when_the_gateway_stops_are_sent(engine: SimEngine) -> None:
    with HttpCollector() as collector:
        with RunningGateway(settings(collector) + backend("a", engine, "m")) as gateway:
            gateway.until_health(a="healthy")
            ask(gateway, "m", trace="6af7651916cd43dd8448eb211c80319c")
        assert {"chat m", "upstream"} <= {span.name for span in collector.spans}


def test_a_collector_that_is_gone_costs_no_request(engine: SimEngine) -> None:
    with HttpCollector() as collector:
        collector.stop()
        with RunningGateway(settings(collector, 'flush_timeout = "0s"') + backend("a", engine, "m")) as gateway:
            gateway.until_health(a="healthy")
            assert {ask(gateway, "m").status_code for _ in range(50)} == {200}


def test_spans_travel_by_grpc(engine: SimEngine) -> None:
    with GrpcCollector() as collector:
        config = settings(collector, 'protocol = "grpc"\nheaders = { key = "k" }') + backend("a", engine, "m")
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


def _named(spans: list[CollectedSpan], trace: str, name: str) -> list[CollectedSpan]:
    return [span for span in spans if span.trace_id == trace and span.name == name]


def _exporters(gateway: RunningGateway) -> list[psutil.Process]:
    return [child for child in psutil.Process(gateway.pid).children() if _is_exporter(child)]


def _is_exporter(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "enginehouse.telemetry.exporter" in process.cmdline()
    return False
