"""Spans as the collector gets them, compared with what the SDK's own encoder makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from enginehouse_otlp.messages import ExportSettings
from enginehouse_otlp.process.destinations import span_destination
from enginehouse_otlp.process.encoding import SpanEncoder
from enginehouse_otlp.process.span_batch import SpanBatch, SpanReader
from enginehouse_otlp.process.spans import Span, SpanEvent, SpanId
from tests.support.otlp_collector import HttpCollector

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


def reader(between: Callable[[], None] = lambda: None) -> SpanReader:
    return SpanReader(RESOURCE, "0.1", between)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_a_span_is_encoded_as_the_sdk_encodes_it(span: Span) -> None:
    batch = SpanBatch([span], reader())
    assert SpanEncoder(reader()).encode(batch) == encode_spans(batch)


def test_all_spans_have_their_resource_and_scope_in_common() -> None:
    batch = SpanBatch(list(SPANS.values()), reader())
    assert SpanEncoder(reader()).encode(batch) == encode_spans(batch)


def test_a_batch_can_be_cut() -> None:
    batch = SpanBatch(list(SPANS.values()), reader())
    assert [span.kind for span in batch[1:3]] == [SpanKind.SERVER, SpanKind.CLIENT]


@pytest.mark.parametrize("own", [True, False])
def test_the_gateway_may_have_the_core_between_two_spans(own: bool) -> None:
    yields: list[bool] = []
    counting = reader(lambda: yields.append(True))
    encode: Any = SpanEncoder(counting).encode if own else encode_spans
    encode(SpanBatch([PLAIN, PLAIN], counting))
    assert len(yields) == 2


def test_only_an_encoder_that_makes_the_same_is_replaced() -> None:
    encoder = SpanEncoder(reader())
    assert encoder.replaces(encode_spans)
    assert not encoder.replaces(None)
    assert not encoder.replaces(lambda spans: encode_spans(spans).SerializeToString())
    assert not encoder.replaces(lambda spans, config: encode_spans(spans))


class NewerMessage:
    """What an exporter gets from another encoder."""

    def __init__(self, spans: Sequence[ReadableSpan]) -> None:
        self.SerializePartialToString = encode_spans(spans).SerializePartialToString


def test_spans_arrive_although_the_exporter_has_another_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "encode_spans", NewerMessage)
    with HttpCollector() as collector:
        settings = ExportSettings("otlp", collector.url, "http", {}, "", "0", 1.0)
        destination = span_destination(settings, RESOURCE, lambda: None)
        assert destination.export([PLAIN])
        destination.shutdown()
        assert [span.name for span in collector.spans] == ["chat m"]
