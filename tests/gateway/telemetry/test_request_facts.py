from __future__ import annotations

import msgspec

from enginehouse.domain.explanation import RouteDetails
from enginehouse.domain.request_record import EngineTimings, StreamGap
from enginehouse_kit.testing import request_record
from tests.support.request_facts import facts_of


def test_the_record_of_facts_has_all_of_them() -> None:
    served = request_record("m", "a").attempts[0]
    gap, details = StreamGap("broken", 1.0, 2.0, 3.0), RouteDetails("smart", 2)
    attempt = msgspec.structs.replace(served, gap=gap, details=details, queued=True, granted=100.125)
    known = {
        "caller": "alice",
        "user": "u",
        "code": "c",
        "message": "m",
        "stream": True,
        "moves": 1,
        "granted": 100.125,
    }
    counts = {"tokens_cached": 3, "events": 4, "trace_id": "t", "timings": EngineTimings(1.0, 2.0, 3, 4)}
    record = request_record("m", "a", attempts=(attempt,), **known, **counts)
    assert facts_of(record).record() == record


def test_steps_that_were_not_reached_have_no_time_in_a_record() -> None:
    record = request_record(None)
    assert facts_of(record).record() == record
    assert (record.routed, record.granted, record.sent, record.first_byte) == (None, None, None, None)
