"""The trace of a stream that goes on elsewhere."""

from __future__ import annotations

from enginehouse.interfaces.exporters import TracedRequest
from enginehouse_otlp.process.spans import spans
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
    requests: list[TracedRequest] = []
    assert gateway.relay.context.tracer is not None
    gateway.relay.context.tracer.add = requests.append
    first.breaks = [Break(9, Cut.CLOSE)]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 30}
    await gateway.ask(gateway.post(asked))
    await until(lambda: requests)
    root, *below = spans(requests[0], 0)
    halves = [span for span in below if span.name == "upstream"]
    assert [span.attributes["enginehouse.backend"] for span in halves] == ["a", "b"]
    assert [span.error is None for span in halves] == [False, True]
    (between,) = [span for span in below if span.name == "continue"]
    assert between.attributes["enginehouse.replica"] == f"{MODEL}@b"
    assert halves[0].began < between.began <= halves[0].ended
    assert between.attributes["enginehouse.cause"] == "broken"
    gap = requests[0].record.attempts[1].gap
    assert gap is not None
    assert gap.tokens == len(other.asked()["prompt"]), "of the prompt, and of the answer so far"
    routes = [span.attributes["enginehouse.candidates"] for span in below if span.name == "route"]
    assert routes == [2, 2]
    assert all(span.parent == root.id for span in (*halves, between))
    told = [dict(call.lines)[b"traceparent"] for call in (first.calls[0], other.calls[-1])]
    assert told == [b"00-%032x-%016x-01" % (root.id.trace, span.id.span) for span in halves]
    assert root.attributes["enginehouse.chunks"] == requests[0].record.events > 9
