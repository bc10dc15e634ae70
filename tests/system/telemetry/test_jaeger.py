"""Traces of all kinds of requests, read as Jaeger reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.jaeger import problems
from tests.support.otlp_collector import CollectedSpan, HttpCollector
from tests.support.parallel import all_of
from tests.support.traced_gateway import ask, backend, settings

MADE_UP = 1000
SHARED = ("m", "retried", "broken", "moved", "slow", "faulty")


@pytest.fixture(scope="module")
def spans() -> Iterator[list[CollectedSpan]]:
    """The spans of plain, retried, continued, moved, hedged, swapped, refused, failed and made-up requests."""
    with HttpCollector() as collector:
        first, other = (SimEngine(*SHARED) for _ in range(2))
        with all_of(first, other), RunningGateway(config(collector.url, first, other)) as gateway:
            gateway.until_health(first="healthy", other="healthy")
            fail(first, other)
            asked = ask_all(gateway)
            asked += make_up(gateway)
            yield collector.until(lambda spans: sum(span.kind == "server" for span in spans) >= asked)


def config(collector: str, first: SimEngine, other: SimEngine) -> str:
    return (
        settings(collector)
        + '[routing]\nstrategy = "priority_only"\nhedge_after = "1s"\n[checks]\nfailures = 1000\n'
        + backend("first", first, *SHARED, more='driver = "sim"')
        + backend("other", other, *SHARED, more='driver = "sim"\npriority = 9')
        + '[backends.gone]\nurl = "http://127.0.0.1:9"\nmodels = ["lost"]\n'
        + "".join(f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "0", "--tpot", "0"]\n' for name in "xy")
    )


def fail(first: SimEngine, other: SimEngine) -> None:
    first.fault("error", status=503, model="retried")
    first.fault("drop", after=9, model="broken", count=1)
    first.fault("hang", model="slow")
    first.fault("slow", per_chunk="1s", model="moved")
    for engine in (first, other):
        engine.fault("error", status=500, model="faulty")


def ask_all(gateway: RunningGateway) -> int:
    """Ask in every way; how many requests that were."""
    plain = ("m", "retried", "faulty", "lost", "x", "y")
    streams = ("m", "broken", "slow")
    for model in plain:
        ask(gateway, model)
    for model in streams:
        ask(gateway, model, stream=True, tokens=30)
    body = {"model": "moved", "messages": [], "stream": True, "max_tokens": 30}
    url, headers = f"{gateway.url}/v1/chat/completions", {"x-request-id": "moves"}
    with plain_httpx.stream("POST", url, json=body, headers=headers) as reply:
        lines = reply.iter_lines()
        next(lines)
        plain_httpx.post(f"{gateway.url}/api/requests/moves/move", json={"to": "other"}).raise_for_status()
        assert list(lines)
    return len(plain) + len(streams) + 1


def make_up(gateway: RunningGateway) -> int:
    with plain_httpx.Client() as client:
        for number in range(MADE_UP):
            client.post(f"{gateway.url}/v1/chat/completions", json={"model": f"made-up-{number}", "messages": []})
        for number in range(40):
            client.get(f"{gateway.url}/upstream/m/some/path/{number}")
    return MADE_UP + 40


def test_jaeger_has_nothing_to_warn_of(spans: list[CollectedSpan]) -> None:
    assert problems(spans) == []


def test_the_list_of_operations_is_bounded(spans: list[CollectedSpan]) -> None:
    models = (*SHARED, "lost", "x", "y")
    parts = {"route", "schedule", "swap", "upstream", "continue", "migrate"}
    known = {f"chat {model}" for model in models} | parts | {"chat", "GET /upstream/{model}/{path}"}
    assert {span.name for span in spans} <= known
    assert {"chat", "GET /upstream/{model}/{path}", "migrate", "continue", "swap"} <= {span.name for span in spans}


def test_refusals_and_failures_are_told_apart(spans: list[CollectedSpan]) -> None:
    roots = [span for span in spans if span.kind == "server"]
    failed = {(span.name, span.attributes["error.type"]) for span in roots if span.failed}
    assert failed == {("chat faulty", "500"), ("chat lost", "no_healthy_backend")}
    refused = [span for span in roots if span.attributes.get("enginehouse.code") == "model_not_found"]
    assert len(refused) == MADE_UP
    routes = {span.trace_id for span in spans if span.name == "route"}
    assert {span.trace_id for span in refused} <= routes
