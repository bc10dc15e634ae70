"""Spans as the collector gets them, compared with what the SDK's own encoder makes of them."""

from __future__ import annotations

import io

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanKind

from enginehouse_otlp.process.encoding import SpanEncoder
from enginehouse_otlp.process.printing import SpanPrinter
from enginehouse_otlp.process.spans import Span, SpanEvent, SpanId

RESOURCE = Resource({"service.name": "house", "team": "a", "ports": (1, 2)}, schema_url="https://schema")
OWN = SpanId(trace=7 << 96, span=9)
ATTRIBUTES = {
    "text": "é",
    "yes": True,
    "count": 1 << 40,
    "part": 0.5,
    "models": ("a", "b"),
    "none": (),
    "holes": (None, "a"),
}
PLAIN = Span("chat m", OWN, None, 5, 9, ATTRIBUTES)
SPANS = {
    "plain": PLAIN,
    "server, with a client's parent": PLAIN._replace(parent=SpanId(OWN.trace, 3, remote=True), kind=SpanKind.SERVER),
    "client, with an own parent": PLAIN._replace(parent=SpanId(OWN.trace, 3), kind=SpanKind.CLIENT),
    "with events": PLAIN._replace(events=(SpanEvent("first_chunk", 6), SpanEvent("moved", 7, {"to": "b"}))),
    "linked": PLAIN._replace(link=SpanId(1 << 127, (1 << 64) - 1)),
    "of a client with a state": PLAIN._replace(state="a=b,c=d"),
    "failed": PLAIN._replace(error="broke off"),
    "failed without a word": PLAIN._replace(error=""),
}


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_a_span_is_encoded_as_the_sdk_encodes_it(span: Span) -> None:
    printer = SpanPrinter(RESOURCE, "0.1", io.StringIO())
    assert SpanEncoder(RESOURCE, "0.1", lambda: None).encode([span]) == encode_spans([printer.readable(span)])


def test_all_spans_have_their_resource_and_scope_in_common() -> None:
    printer = SpanPrinter(RESOURCE, "0.1", io.StringIO())
    spans = list(SPANS.values())
    assert SpanEncoder(RESOURCE, "0.1", lambda: None).encode(spans) == encode_spans(
        [printer.readable(span) for span in spans]
    )


def test_the_gateway_may_have_the_core_between_two_spans() -> None:
    yields: list[bool] = []
    SpanEncoder(RESOURCE, "0.1", lambda: yields.append(True)).encode([PLAIN, PLAIN])
    assert len(yields) == 2
