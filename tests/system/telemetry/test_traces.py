"""Traces of requests of all kinds, as a collector receives them from a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.otlp_collector import CollectedSpan, HttpCollector, SpanCollector
from tests.support.parallel import all_of
from tests.support.phoenix import Phoenix
from tests.support.real_engines import find_phoenix
from tests.support.traced_gateway import CLIENT, ask, backend, settings

TOKENS = 30
EVENTS = 1 + TOKENS + 1
"""Of a stream: the role, the tokens, the end."""


class Traced(NamedTuple):
    gateway: RunningGateway
    collector: SpanCollector
    first: SimEngine
    other: SimEngine
    config: str

    def reload(self, hedge_after: str) -> None:
        self.gateway.write_config(self.config.replace('hedge_after = "off"', f'hedge_after = "{hedge_after}"'))
        plain_httpx.post(f"{self.gateway.url}/api/reload").raise_for_status()

    def told(self, engine: SimEngine, trace: str) -> list[str]:
        """The spans that ``engine`` was told of, of one trace."""
        told = [request.header("traceparent") or "" for request in engine.requests()]
        return [each.split("-")[2] for each in told if trace in each]


@pytest.fixture(
    scope="module",
    params=[
        "receiver",
        pytest.param("phoenix", marks=[pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def collector(request: pytest.FixtureRequest) -> Iterator[SpanCollector]:
    """A receiver that reads OpenTelemetry's protocol, and a real store of traces."""
    if request.param == "receiver":
        with HttpCollector() as receiver:
            yield receiver
        return
    program = find_phoenix()
    if program is None:
        pytest.skip("no Phoenix is installed: run `make engines ENGINES=phoenix`")
    with Phoenix(program) as phoenix:
        yield phoenix


@pytest.fixture(scope="module")
def traced(collector: SpanCollector) -> Iterator[Traced]:
    """A gateway that traces everything, before engines that fail some models. ``x`` and ``y`` swap."""
    first, other = (SimEngine("m", "retried", "broken", "moved", "slow") for _ in range(2))
    swapped = "".join(f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "0", "--tpot", "0"]\n' for name in "xy")
    shared = ("retried", "broken", "moved", "slow")
    with all_of(first, other):
        first.fault("error", status=503, model="retried")
        first.fault("drop", after=9, model="broken", count=1)
        first.fault("hang", model="slow")
        first.fault("slow", per_chunk="1s", model="moved")
        other.fault("slow", per_chunk="20ms", model="moved")
        config = (
            settings(collector.url)
            + '[routing]\nstrategy = "priority_only"\nhedge_after = "off"\n[checks]\nfailures = 1000\n'
            + backend("first", first, "m", *shared, more='driver = "sim"')
            + backend("other", other, *shared, more='driver = "sim"\npriority = 9')
            + swapped
        )
        with RunningGateway(config) as gateway:
            gateway.until_health(first="healthy", other="healthy")
            yield Traced(gateway, collector, first, other, config)


def test_a_plain_request_has_a_route_and_an_upstream_below_it(traced: Traced) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    reply = ask(traced.gateway, "m", trace=trace)
    spans = traced.collector.trace(trace, "chat m", "route", "upstream")
    root, route, upstream = spans["chat m"], spans["route"], spans["upstream"]
    assert (root.parent_id, root.failed) == (CLIENT, False)
    assert {route.parent_id, upstream.parent_id} == {root.span_id}
    assert root.attributes["gen_ai.operation.name"] == "chat"
    assert root.attributes["gen_ai.request.model"] == "m"
    assert root.attributes["enginehouse.backend"] == "first"
    assert root.attributes["enginehouse.request_id"] == reply.headers["x-request-id"]
    usage = reply.json()["usage"]
    assert root.attributes["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert root.attributes["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert root.attributes["enginehouse.tokens.source"] == "usage"
    assert root.attributes["enginehouse.bytes"] == len(reply.content)
    assert route.attributes["enginehouse.strategy"] == "priority_only"
    assert route.attributes["enginehouse.candidates"] == 1
    assert route.attributes["enginehouse.reason"] == "match"
    assert upstream.attributes["server.port"] == traced.first.port
    assert root.began <= route.began <= route.ended <= upstream.began < upstream.ended <= root.ended
    assert "planted-prompt" not in repr(spans)


def test_an_engine_is_told_of_the_upstream_span(traced: Traced) -> None:
    trace = "1af7651916cd43dd8448eb211c80319c"
    ask(traced.gateway, "m", trace=trace)
    upstream = traced.collector.trace(trace, "upstream")["upstream"]
    assert traced.told(traced.first, trace) == [upstream.span_id]


def test_a_stream_tells_its_chunks_and_the_time_to_the_first_one(traced: Traced) -> None:
    trace = "2af7651916cd43dd8448eb211c80319c"
    reply = ask(traced.gateway, "m", trace=trace, stream=True)
    assert reply.status_code == 200, reply.text
    root = traced.collector.trace(trace, "chat m", "upstream")["chat m"]
    events = reply.text.count("data: ")
    assert root.attributes["gen_ai.request.stream"] is True
    assert root.attributes["enginehouse.chunks"] == events - 2  # neither the end of the choice nor [DONE] has a token
    assert root.attributes["enginehouse.tokens.source"] == "chunks"
    assert root.attributes["gen_ai.usage.output_tokens"] == events - 2
    assert 0 < root.attributes["gen_ai.response.time_to_first_chunk"] < (root.ended - root.began) / 1e9


def test_each_attempt_of_a_retried_request_is_told(traced: Traced) -> None:
    trace = "3af7651916cd43dd8448eb211c80319c"
    assert ask(traced.gateway, "retried", trace=trace).headers["x-enginehouse-reason"] == "retry"
    root, (first, second), spans = attempts(traced, trace)
    assert (first.failed, second.failed) == (True, False)
    assert first.attributes["http.response.status_code"] == 503
    assert first.attributes["error.type"] == "503"
    assert len(named(spans, "route")) == 2
    assert root.attributes["enginehouse.reason"] == "retry"


def test_a_stream_that_another_engine_continues_is_one_trace(traced: Traced) -> None:
    trace = "4af7651916cd43dd8448eb211c80319c"
    reply = ask(traced.gateway, "broken", trace=trace, stream=True, tokens=TOKENS)
    assert reply.text.count("data: ") == EVENTS
    root, (first, second), spans = attempts(traced, trace)
    assert (first.failed, second.failed, root.failed) == (True, False, False)
    assert first.attributes["enginehouse.outcome"] == "upstream_error"
    (between,) = named(spans, "continue")
    assert between.parent_id == root.span_id
    assert between.attributes["enginehouse.replica"] == "broken@other"
    assert between.began <= first.ended <= second.began <= between.ended <= second.ended
    assert root.attributes["enginehouse.chunks"] == TOKENS


def test_a_stream_that_is_moved_is_one_trace(traced: Traced) -> None:
    trace = "5af7651916cd43dd8448eb211c80319c"
    body = {"model": "moved", "messages": [], "stream": True, "max_tokens": TOKENS}
    headers = {"traceparent": f"00-{trace}-{CLIENT}-01", "x-request-id": "moves"}
    url = f"{traced.gateway.url}/v1/chat/completions"
    with plain_httpx.stream("POST", url, json=body, headers=headers) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        plain_httpx.post(
            f"{traced.gateway.url}/api/requests/moves/move", json={"to": "other"}, timeout=30
        ).raise_for_status()
        assert sum(line.startswith("data: ") for line in lines) == EVENTS - 1
    root, (first, second), spans = attempts(traced, trace)
    assert (first.failed, second.failed, root.failed) == (False, False, False)
    assert first.attributes["enginehouse.outcome"] == "moved"
    (between,) = named(spans, "migrate")
    assert between.parent_id == root.span_id
    assert between.attributes["enginehouse.replica"] == "moved@other"
    assert between.began <= second.began <= first.ended <= between.ended <= second.ended


def test_a_hedged_stream_tells_who_was_overtaken(traced: Traced) -> None:
    trace = "6af7651916cd43dd8448eb211c80319c"
    traced.reload(hedge_after="100ms")
    ask(traced.gateway, "slow", trace=trace, stream=True).raise_for_status()
    traced.reload(hedge_after="off")
    root, (first, second), spans = attempts(traced, trace)
    outcomes = [span.attributes["enginehouse.outcome"] for span in (first, second)]
    assert outcomes == ["overtaken", "served"]
    assert (first.failed, second.failed) == (False, False)
    assert first.began < second.began < first.ended
    names = {span.name for span in spans} - {"schedule"}  # on a busy machine, a queue that has room takes a millisecond
    assert names == {"chat slow", "route", "upstream"}
    assert root.attributes["enginehouse.backend"] == "other"


def test_a_request_that_waits_for_a_swap_shows_it(traced: Traced) -> None:
    assert ask(traced.gateway, "x").status_code == 200
    trace = "7af7651916cd43dd8448eb211c80319c"
    assert ask(traced.gateway, "y", trace=trace).status_code == 200
    spans = traced.collector.trace(trace, "chat y", "schedule", "swap", "upstream")
    assert spans["schedule"].parent_id == spans["chat y"].span_id
    assert spans["swap"].parent_id == spans["schedule"].span_id
    assert spans["swap"].attributes["enginehouse.swap.evicted"] == ["x@x"]
    assert spans["schedule"].ended <= spans["upstream"].began


def attempts(
    traced: Traced, trace: str
) -> tuple[CollectedSpan, tuple[CollectedSpan, CollectedSpan], list[CollectedSpan]]:
    """The root, the calls of both engines and all spans of a trace, in which the first and then the other was asked.

    Each engine was told of the span of its call.
    """
    everything = traced.collector.until(lambda spans: sum(s.trace_id == trace for s in named(spans, "upstream")) == 2)
    spans = [span for span in everything if span.trace_id == trace]
    (root,) = [span for span in spans if span.parent_id == CLIENT]
    first, second = sorted(named(spans, "upstream"), key=lambda span: span.began)
    assert [span.attributes["enginehouse.backend"] for span in (first, second)] == ["first", "other"]
    assert {span.parent_id for span in (first, second)} == {root.span_id}
    assert len({span.span_id for span in spans}) == len(spans)
    assert root.attributes["enginehouse.attempts"] == 2
    assert traced.told(traced.first, trace) == [first.span_id]
    assert traced.told(traced.other, trace) == [second.span_id]
    return root, (first, second), spans


def named(spans: list[CollectedSpan], name: str) -> list[CollectedSpan]:
    return [span for span in spans if span.name == name]
