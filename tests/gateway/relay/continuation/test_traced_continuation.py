"""The trace of a stream that goes on elsewhere."""

from __future__ import annotations

import msgspec
from opentelemetry.sdk.resources import Resource

from enginehouse.telemetry.exporter.messages import RawRecord, RequestRecord
from enginehouse.telemetry.exporter.spans import SpanMaker
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import Cut
from tests.support.served_gateway import MODEL, OpenGateway
from tests.support.waiting import until


async def test_a_continued_stream_is_one_trace_that_tells_both_halves(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    telemetry = {"traces": "otlp", "sample_ratio": 1.0}
    gateway = await house(first, other, backend={"driver": "vllm"}, telemetry=telemetry)
    records: list[RawRecord] = []
    assert gateway.relay.context.tracer is not None
    gateway.relay.context.tracer.add = records.append
    first.breaks = [Break(9, Cut.CLOSE)]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 30}
    await gateway.ask(gateway.post(asked))
    await until(lambda: records)
    record = msgspec.convert(records[0], RequestRecord)
    root, *below = SpanMaker(Resource({}), "0").spans(record, 0)
    halves = [span for span in below if span.name == "upstream"]
    assert [(span.attributes or {})["enginehouse.backend"] for span in halves] == ["a", "b"]
    assert [span.status.is_ok for span in halves] == [False, True]
    (between,) = [span for span in below if span.name == "continue"]
    assert (between.attributes or {})["enginehouse.replica"] == f"{MODEL}@b"
    assert between.start_time == halves[0].end_time
    assert all(span.parent == root.context for span in (*halves, between))
    told = [dict(call.lines)[b"traceparent"] for call in (first.calls[0], other.calls[-1])]
    assert told == [b"00-%032x-%016x-01" % (root.context.trace_id, span.context.span_id) for span in halves]
    assert (root.attributes or {})["enginehouse.chunks"] == record.ending.events > 9
