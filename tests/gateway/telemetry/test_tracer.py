from __future__ import annotations

import msgspec
import pytest

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.request import Headers
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.telemetry.trace_context import (
    SPANS_PER_ATTEMPT,
    UPSTREAM_SPAN,
    Parent,
    Trace,
    UnsampledLines,
    read_traceparent,
    span_number,
    with_trace,
)
from enginehouse.telemetry.tracer import Tracer

TRACE, SPAN = b"0af7651916cd43dd8448eb211c80319c", b"b7ad6b7169203331"
YES, NO = b"00-%s-%s-01" % (TRACE, SPAN), b"00-%s-%s-00" % (TRACE, SPAN)
PARENT = Parent(TRACE, SPAN, True)


def tracer(
    *, admits: bool = True, sample_ratio: float = 0.0, follows_parent: bool = True, **settings: object
) -> Tracer:
    added: list[TracedRequest] = []
    made = msgspec.convert(settings, TelemetrySettings)
    return Tracer(made, lambda: admits, added.append, lambda _: b"", ratio=sample_ratio, follows_parent=follows_parent)


def fields(parent: Parent | None) -> tuple[bytes, bytes, bool] | None:
    return None if parent is None else (parent.trace_id, parent.span_id, parent.sampled)


def told(value: bytes, *more: tuple[bytes, bytes]) -> Headers:
    return [(b"host", b"x"), (b"traceparent", value), *more]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        b"00-%s-%s" % (TRACE, SPAN),
        b"ff-%s-%s-01" % (TRACE, SPAN),
        b"00-%s-%s-01-x" % (TRACE, SPAN),
        b"00-%s-%s-01" % (b"0" * 32, SPAN),
        b"00-%s-%s-01" % (TRACE, b"0" * 16),
        YES.upper(),
        b" " + YES,
    ],
)
def test_a_malformed_traceparent_is_ignored(value: bytes) -> None:
    assert read_traceparent(value) is None


def test_a_later_version_may_have_more_fields() -> None:
    assert fields(read_traceparent(b"01-%s-%s-01-more" % (TRACE, SPAN))) == (TRACE, SPAN, True)


def test_the_client_decides_whether_its_request_is_traced() -> None:
    never, always = tracer(sample_ratio=0.0), tracer(sample_ratio=1.0)
    trace, _ = never.begin(told(YES))
    assert trace is not None
    assert (trace.trace_id, fields(trace.parent)) == (TRACE, (TRACE, SPAN, True))
    assert always.begin(told(NO)) == (None, b"")


def test_a_sampler_that_is_not_based_on_the_parent_decides_alone() -> None:
    trace, _ = tracer(sample_ratio=1.0, follows_parent=False).begin(told(NO))
    assert trace is not None
    assert (trace.parent, fields(trace.link)) == (None, (TRACE, SPAN, False))
    none, lines = tracer(sample_ratio=0.0, follows_parent=False).begin(told(YES))
    assert none is None
    assert lines.endswith(b"-00\r\n")


def test_without_a_valid_traceparent_the_ratio_decides() -> None:
    for headers in ([], told(b"nonsense"), [*told(YES), *told(YES)], [*told(b""), *told(YES)]):
        assert tracer(sample_ratio=0.0).begin(headers)[0] is None
        trace, _ = tracer(sample_ratio=1.0).begin(headers)
        assert trace is not None
        assert trace.parent is None


def test_without_propagators_the_client_is_not_heard() -> None:
    assert tracer(sample_ratio=0.0, propagators=[]).begin(told(YES)) == (None, b"")


def test_slow_and_failed_requests_are_kept() -> None:
    kept = tracer(keep_slow=2.0, keep_failed=True)
    assert (kept.keeps(2.0, 200), kept.keeps(0.1, 502), kept.keeps(1.9, 499)) == (True, True, False)
    dropped = tracer(keep_slow=0.0, keep_failed=False)
    assert (dropped.keeps(9999.0, 200), dropped.keeps(0.1, 502)) == (False, False)


def test_a_trace_that_begins_late_links_to_the_client() -> None:
    trace = tracer().begin_late(told(NO))
    assert trace.parent is None
    assert fields(trace.link) == (TRACE, SPAN, False)
    assert trace.trace_id != TRACE


def test_an_exporter_that_is_behind_is_spared_new_traces() -> None:
    busy = tracer(admits=False, sample_ratio=1.0)
    assert busy.begin([])[0] is None
    assert busy.begin(told(YES)) == (None, b"")


def test_a_late_trace_of_a_request_that_the_client_sampled_continues_it() -> None:
    trace = tracer().begin_late(told(YES, (b"tracestate", b"a=b")))
    assert (trace.trace_id, fields(trace.parent), trace.link) == (TRACE, (TRACE, SPAN, True), None)
    assert trace.state == b"a=b"


def test_an_engine_is_told_of_its_own_span() -> None:
    trace = Trace(PARENT, state=b"a=b")
    headers = told(YES, (b"tracestate", b"a=b"), (b"baggage", b"k=v"))
    first = with_trace(headers, trace.lines(0))
    second = with_trace(headers, trace.lines(1))
    assert [name for name, _ in first] == [b"host", b"baggage", b"traceparent", b"tracestate"]
    assert dict(first)[b"traceparent"] == b"00-%s-%016x-01" % (TRACE, span_number(trace.root, 0, UPSTREAM_SPAN))
    assert dict(first)[b"traceparent"] != dict(second)[b"traceparent"]


def test_a_trace_of_the_gateways_own_takes_no_state_from_a_client() -> None:
    headers = with_trace(told(b"nonsense", (b"tracestate", b"a=b")), Trace().lines(0))
    assert dict(headers).keys() == {b"host", b"traceparent"}


def test_an_engine_is_told_that_a_request_is_not_sampled() -> None:
    _, lines = tracer(sample_ratio=0.0).begin([])
    (value,) = dict(with_trace([], lines)).values()
    parent = read_traceparent(value)
    assert parent is not None
    assert not parent.sampled
    made = UnsampledLines()
    assert len({made.next() for _ in range(600)}) == 600


def test_ids_are_valid_and_differ() -> None:
    traces = [Trace() for _ in range(100)]
    assert len({trace.trace_id for trace in traces}) == 100
    for trace in traces:
        numbers = [span_number(trace.root, attempt, at) for attempt in range(100) for at in range(SPANS_PER_ATTEMPT)]
        assert len({trace.root, *numbers}) == 801
        assert all(0 < number < 1 << 64 for number in (trace.root, *numbers))
